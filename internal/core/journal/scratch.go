package journal

import (
	"strings"

	"github.com/rathcluster/rath/session"
)

// The reasons for closing sessions that models used only for thinking.
const (
	OnlyJudged     = "it only judged"
	OnlySummarised = "it only summarised"
	OnlyNoted      = "notes were taken on it"
	NotDecided     = "nothing was decided on it"
)

// NotNoted begins the reason of a session on which a model failed to take notes. No
// outcome shows that failure, so the run warns with the reason.
const NotNoted = "notes not taken: "

// Warns reports whether a run warns about the end of a branch.
func Warns(reason string) bool { return strings.HasPrefix(reason, NotNoted) }

// Scratch reports whether a branch with this outcome was made only to be read, never to
// be adopted. Its rejection is not reported to users.
func Scratch(state, reason string) bool {
	switch reason {
	case OnlyJudged, OnlySummarised, OnlyNoted, NotDecided:
		return state == session.ClosedRejected
	}
	return Warns(reason) && state == session.ClosedRejected
}
