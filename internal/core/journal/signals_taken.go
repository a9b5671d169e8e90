package journal

import (
	"slices"

	"github.com/rathcluster/rath/run"
)

// maxSignals is the number of signal ids that are kept per session, the newest ones. A
// signal that is redelivered after more than that many others counts as new.
const maxSignals = 128

// deliveredSignal is the id of a recorded signal, and the run of its fact; "" is for
// the session.
type deliveredSignal struct {
	ID  string `json:"id"`
	Run run.ID `json:"run,omitempty"`
}

// deliver records the id of a signal; "" is the id of a signal that may be applied
// twice.
func (b *RunState) deliver(id string, about run.ID) {
	if id == "" {
		return
	}
	b.delivered = append(b.delivered[max(len(b.delivered)+1-maxSignals, 0):], deliveredSignal{id, about})
}

// wasDelivered reports whether a signal was recorded before. A signal to a session may
// have become a fact about the run that held it.
func (b *RunState) wasDelivered(s Signal) bool {
	id, about := s.id()
	return id != "" && slices.ContainsFunc(b.delivered, func(h deliveredSignal) bool { return h.ID == id && (about == "" || h.Run == about) })
}

// id returns the idempotency key of a signal, and the run that it is for.
func (s Signal) id() (id string, about run.ID) {
	switch {
	case s.Received != nil && s.Received.Kind != Report: // each branch reports once
		return s.Received.ID, s.Run
	case s.Cancel != nil:
		return s.Cancel.ID, s.Run
	case s.Resolve != nil:
		return s.Resolve.ID, s.Run
	case s.Rebudget != nil:
		return s.Rebudget.ID, s.Run
	case s.Quarantine != nil:
		return s.Quarantine.ID, ""
	}
	return "", ""
}
