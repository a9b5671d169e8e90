package flow

import (
	"context"
	"errors"
	"slices"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// errInterrupted ends a model call that the user talked into; it is made again
// with what he said.
var errInterrupted = errors.New("flow: interrupted by a message")

// messages returns what the user said since the last step that took it, and up
// to which place in the inbox that is. Only the run's own session hears it.
func (ex *Execution) messages(st *step) (words []session.Chunk, upTo uint64) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if st.s.Key() != ex.home {
		return nil, 0
	}
	st.hears = true
	for _, v := range ex.inbox {
		if v.Kind == run.Message && v.N > ex.heard {
			words, upTo = append(words, session.UserText(v.Text)), v.N
		}
	}
	st.heard = max(upTo, ex.heard)
	return words, upTo
}

// told reports whether an agent that is done with s has to answer once more:
// the user said something meanwhile. On a later execution the journal says so,
// because c, the call that follows then, differs from any other. A run that was
// past the agent before stays past it, whatever the user has said since.
func told(ctx context.Context, s session.Session, c *call) bool {
	sc, err := scopeOf(ctx, run.StepRequest{Kind: run.StepModel, Name: c.agent})
	if err != nil || s.PendingDigest() != "" {
		return false
	}
	ex := sc.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	at := sc.prefix.Index(sc.next)
	if next := ex.journal.Step(at); next != nil {
		return next.Kind == run.StepModel && next.Name == c.agent && next.Input == inputDigest(s, []string{c.digest()})
	}
	// It may have waited there, and be woken.
	past := ex.journal.Began(at) || slices.ContainsFunc(ex.inbox, func(v run.SignalReceived) bool { return v.Path.Within(at) })
	if past || s.Key() != ex.home || ex.poison != nil {
		return false
	}
	for _, v := range ex.inbox {
		if v.Kind == run.Message && v.N > ex.heard {
			return true
		}
	}
	return false
}

// interruptible cancels a call with errInterrupted when a message after a place in
// the inbox asks for it, until the returned function is called.
func (ex *Execution) interruptible(after uint64, cancel context.CancelCauseFunc) (done func()) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.interrupt = func() {
		for _, v := range ex.inbox {
			if v.Kind == run.Message && v.Interrupt && v.N > after {
				cancel(errInterrupted)
			}
		}
	}
	ex.interrupt()
	return func() {
		ex.mu.Lock()
		ex.interrupt = nil
		ex.mu.Unlock()
	}
}
