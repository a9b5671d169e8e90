package journal

import "github.com/rathcluster/rath/session"

// The reasons with which the sessions end that models only thought on.
const (
	OnlyJudged     = "it only judged"
	OnlySummarised = "it only summarised"
	OnlyNoted      = "notes were taken on it"
	NotDecided     = "nothing was decided on it"
)

// Scratch reports whether a branch that ended so was made to be read, and never to be
// taken: people are not told that it was rejected.
func Scratch(state, reason string) bool {
	switch reason {
	case OnlyJudged, OnlySummarised, OnlyNoted, NotDecided:
		return state == session.ClosedRejected
	}
	return false
}
