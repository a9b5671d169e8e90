package journal

import (
	"slices"

	"github.com/rathcluster/rath/run"
)

// maxSignals is how many ids of signals are kept for each session, the newest: a
// signal that comes again later than that many others is a new one.
const maxSignals = 128

// deliveredSignal is the id of a signal that was taken, and the run that its fact is
// about; "" is for the session.
type deliveredSignal struct {
	ID  string `json:"id"`
	Run run.ID `json:"run,omitempty"`
}

// deliver keeps the id of a signal; "" is of one that may be taken twice.
func (b *RunState) deliver(id string, about run.ID) {
	if id == "" {
		return
	}
	b.delivered = append(b.delivered[max(len(b.delivered)+1-maxSignals, 0):], deliveredSignal{id, about})
}

// wasDelivered reports whether a signal was taken before. What is sent to a session
// may have become a fact about the run that held it.
func (b *RunState) wasDelivered(s Signal) bool {
	id, about := s.id()
	return id != "" && slices.ContainsFunc(b.delivered, func(h deliveredSignal) bool { return h.ID == id && (about == "" || h.Run == about) })
}

// id returns what makes a signal idempotent, and which run it is for.
func (s Signal) id() (id string, about run.ID) {
	switch {
	case s.Received != nil && s.Received.Kind != Report: // a branch reports once by itself
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
