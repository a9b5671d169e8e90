package engine

import (
	"errors"
	"slices"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// inbox holds the signals that the run received and no step has taken, and the outcomes of
// started runs, for which several functions of a Gather may wait. The execution's mu
// guards it.
type inbox struct {
	signals   []journal.SignalReceived // by place
	taken     uint64                   // messages up to this place were taken
	interrupt func()                   // of the model call in flight, called when a signal arrives; nil without one
}

// add adds a signal, and reports whether it is new.
func (b *inbox) add(v journal.SignalReceived) bool {
	i, found := slices.BinarySearchFunc(b.signals, v.N, func(o journal.SignalReceived, n uint64) int { return int(int64(o.N) - int64(n)) })
	if found || v.Kind == journal.Message && v.N <= b.taken {
		return false
	}
	b.signals = slices.Insert(b.signals, i, v)
	return true
}

// take removes the signals that a step consumed: messages up to a place, and the answers
// to a path.
func (b *inbox) take(upTo uint64, path run.Path) {
	b.taken = max(b.taken, upTo)
	b.signals = slices.DeleteFunc(b.signals, func(v journal.SignalReceived) bool {
		return v.Kind == journal.Message && v.N <= upTo || v.Kind != journal.Message && (v.Path == path || v.Path.Parent() == journal.QuotaPath(path))
	})
}

// messages returns the messages that no step has taken, and the place of the last one in
// the inbox; 0 without one.
func (b *inbox) messages() (words []session.Chunk, upTo uint64) {
	for _, v := range b.signals {
		if v.Kind == journal.Message && v.N > b.taken {
			words, upTo = append(words, session.UserText(v.Text)), v.N
		}
	}
	return words, upTo
}

// cameFor reports whether a signal came for a step at a path or below it.
func (b *inbox) cameFor(at run.Path) bool {
	return slices.ContainsFunc(b.signals, func(v journal.SignalReceived) bool { return v.Path.Within(at) })
}

// errInterrupted ends a model call during which a message came. The call is repeated with
// the message.
var errInterrupted = errors.New("flow: interrupted by a message")
