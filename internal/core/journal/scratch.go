package journal

import (
	"strings"

	"github.com/rathcluster/rath/session"
)

// The reasons with which the sessions end that models only thought on.
const (
	OnlyJudged     = "it only judged"
	OnlySummarised = "it only summarised"
	OnlyNoted      = "notes were taken on it"
	NotDecided     = "nothing was decided on it"
)

// NotNoted begins the reason of a session on which a model was to take notes and did not.
// No outcome shows that, so that the run warns with the reason.
const NotNoted = "notes not taken: "

// Warns reports whether a run warns of the end of a branch.
func Warns(reason string) bool { return strings.HasPrefix(reason, NotNoted) }

// Scratch reports whether a branch that ended so was made to be read, and never to be
// taken: people are not told that it was rejected.
func Scratch(state, reason string) bool {
	switch reason {
	case OnlyJudged, OnlySummarised, OnlyNoted, NotDecided:
		return state == session.ClosedRejected
	}
	return Warns(reason) && state == session.ClosedRejected
}
