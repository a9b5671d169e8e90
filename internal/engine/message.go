package engine

import (
	"context"
	"slices"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/transcript"
	"github.com/rathcluster/rath/session"
)

// newMessages returns the messages that no step has taken, and the place of the last
// in the inbox. Only the run's own session gets them.
func (s *signals) newMessages(st *step) (words []session.Chunk, upTo uint64) {
	ex := s.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if st.s.Key() != ex.home {
		return nil, 0
	}
	st.takesMessages = true
	words, upTo = ex.inbox.messages()
	st.messagesTo = max(upTo, ex.inbox.taken)
	return words, upTo
}

// hasNewMessages reports whether an agent that has finished with s must answer again,
// because messages have come. On a later execution the journal decides: c, the call that
// follows then, differs from any other. A run that was past the agent before stays past
// it, even if messages have come since.
func (a *agent) hasNewMessages(s session.Session, c *transcript.Call) bool {
	if a.p.in != nil || s.PendingDigest() != "" {
		return false
	}
	ex, at := a.p.sc.ex, a.p.sc.path()
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if next := ex.pos.journal.Step(at); next != nil {
		return next.Kind == journal.StepModel && next.Name == c.Agent && next.Input == ex.sessions.inputDigest(s, []string{c.Digest()})
	}
	// It may have waited there, and be resuming now.
	if ex.past(at) || s.Key() != ex.home || ex.life.poison != nil {
		return false
	}
	_, upTo := ex.inbox.messages()
	return upTo > 0
}

// interruptible cancels a call with errInterrupted when an interrupting message after a
// place in the inbox comes, until the returned function is called.
func (s *signals) interruptible(after uint64, cancel context.CancelCauseFunc) (done func()) {
	ex := s.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.inbox.interrupt = func() {
		if slices.ContainsFunc(ex.inbox.signals, func(v journal.SignalReceived) bool {
			return v.Kind == journal.Message && v.Interrupt && v.N > after
		}) {
			cancel(errInterrupted)
		}
	}
	ex.inbox.interrupt()
	return func() {
		ex.mu.Lock()
		ex.inbox.interrupt = nil
		ex.mu.Unlock()
	}
}
