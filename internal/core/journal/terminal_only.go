package journal

import "github.com/rathcluster/rath/session"

// IsTerminalOnly reports whether a commit is one of those for which a log keeps its last
// room: it ends a run or an attempt, closes or archives a session, or holds what
// a caller outside the run asked for or answered. It also is one if it says what
// became of a call that must not be made twice, which would be unknown otherwise,
// and of what cannot be repeated there is only as much as was under way when the
// room became scarce. What else shares the commit is stored with it.
func IsTerminalOnly(events []session.Event) bool {
	for _, e := range events {
		switch e.Kind {
		case KindEnded, KindSettled, KindReleased, KindReview, KindBranchOutcomes, KindLate,
			KindCancel, KindSignalReceived, KindResolved, KindQuarantined, KindRebudgeted,
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
