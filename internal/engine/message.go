package engine

import (
	"context"

	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/session"
)

// messages returns what the user said since the last step that took it, and up
// to which place in the inbox that is. Only the run's own session hears it.
func (ex *Execution) newMessages(st *step) (words []session.Chunk, upTo uint64) {
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

// told reports whether an agent that is done with s has to answer once more:
// the user said something meanwhile. On a later execution the journal says so,
// because c, the call that follows then, differs from any other. A run that was
// past the agent before stays past it, whatever the user has said since.
func (p *place) hasNewMessages(s session.Session, c *call) bool {
	if p.in != nil || s.PendingDigest() != "" {
		return false
	}
	ex, at := p.sc.ex, p.sc.path()
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if next := ex.pos.journal.Step(at); next != nil {
		return next.Kind == journal.StepModel && next.Name == c.agent && next.Input == inputDigest(s, []string{c.digest()})
	}
	// It may have waited there, and be woken.
	past := ex.pos.journal.Began(at) || ex.inbox.cameFor(at)
	if past || s.Key() != ex.home || ex.life.poison != nil {
		return false
	}
	_, upTo := ex.inbox.messages()
	return upTo > 0
}

// interruptible cancels a call with errInterrupted when a message after a place in
// the inbox asks for it, until the returned function is called.
func (ex *Execution) interruptible(after uint64, cancel context.CancelCauseFunc) (done func()) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.inbox.onInterrupt(after, cancel)
	return func() {
		ex.mu.Lock()
		ex.inbox.interrupt = nil
		ex.mu.Unlock()
	}
}
