package journal

import "github.com/rathcluster/rath/session"

// IsTerminalOnly reports whether a commit may use the space that a log reserves for the
// ends of runs: it ends a run or an attempt, closes or archives a session, or holds a
// request or an answer from outside the run. It also does if it records the outcome of
// a call that must not be repeated, which would be unknown otherwise; the number of
// such calls is limited to those in flight when the space became scarce. The other
// events of the commit are stored with it.
func IsTerminalOnly(events []session.Event) bool {
	for _, e := range events {
		switch e.Kind {
		case KindEnded, KindSettled, KindReleased, KindReview, KindBranchOutcomes, KindLate,
			KindCancel, KindSignalReceived, KindResolved, KindQuarantined, KindRebudgeted, KindLimitReleased, KindEventReleased,
			session.KindClosed, session.KindRejected, session.KindArchived, session.KindRestored:
			return true
		case KindStepCompleted:
			if d, err := Decode[StepCompleted](e); err == nil && (d.Effect == "non_idempotent" || d.Kind == StepReject) {
				return true
			}
		}
	}
	return false
}
