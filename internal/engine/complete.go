package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// completion is a model call under way.
type completion struct {
	c       *call
	st      *step
	ctx     context.Context // of the requests
	req     *llm.Request
	size    int   // of the request as JSON, in bytes
	reserve int64 // tokens
	free    func()
	came    int    // bytes of the answer under way
	pieces  uint64 // of the answer under way that OnDelta got
}

// complete makes the model call and returns the answer with the digest of the
// rendered request.
func (c *call) complete(st *step, s session.Session) (*llm.Response, blob.Digest, error) {
	m := &completion{c: c, st: st, free: func() {}}
	digest, err := m.prepare(s)
	if err != nil {
		return nil, digest, err
	}
	defer func() { m.free() }()
	client, err := st.ex.rt.client(st.ctx, m.req.Provider)
	if err != nil {
		return nil, digest, err
	}
	var cancel context.CancelCauseFunc
	m.ctx, cancel = st.ex.callContext(st.ctx)
	defer cancel(nil)
	if st.takesMessages { // else no step would take the message, however often the call is made
		defer st.ex.interruptible(st.messagesTo, cancel)()
	}
	resp, err := m.ask(client)
	return resp, digest, err
}

// prepare renders the request and reserves what it may use.
func (m *completion) prepare(s session.Session) (blob.Digest, error) {
	ex := m.st.ex
	m.req = &llm.Request{Provider: *m.c.provider, Tools: m.c.tools, Waits: m.waits}
	p := &m.req.Provider
	p.Model = cmp.Or(p.Model, ex.settings().Model, ex.rt.Model)
	msgs, digest, size, err := m.c.shown.render(m.c, s, p)
	if err != nil {
		return digest, fmt.Errorf("flow: render prompt: %w", err)
	}
	m.req.Messages, m.size = msgs, size
	m.reserve = cmp.Or(int64(p.MaxTokens), defaultReply) + llm.Estimate(size)
	m.st.bookKilled(m.reserve)
	m.free, err = ex.reserve(m.reserve)
	return digest, err
}

// ask sends the request, and again as the policy of retries says.
func (m *completion) ask(client llm.Client) (*llm.Response, error) {
	began := time.Now()
	for try := 1; ; try++ {
		if m.ctx.Err() != nil { // nothing was sent
			return nil, context.Cause(m.ctx)
		}
		m.begin()
		resp, err := client.Complete(m.ctx, m.req, m.sink)
		if err == nil {
			m.ended("")
			return resp, nil
		}
		if err = m.failed(retry{try, began}, err); err != nil {
			return nil, err
		}
	}
}

// begin notes that the request is sent.
func (m *completion) begin() {
	m.st.requests++
	m.req.Try, m.req.StepKey = m.st.requests, m.st.key()
	m.came, m.pieces = 0, 0
	m.st.flight.asks(m.req.Provider.Model, m.st.requests)
}

// waits takes until when the client waits for the first piece of the answer.
func (m *completion) waits(until time.Time) { m.st.flight.does(Asks, until) }

// key names the request of the step that is sent now.
func (st *step) key() string {
	key := fmt.Sprintf("%s/%s/%d", st.ex.id, st.asked.Path, st.ex.attempt)
	if st.requests > 1 {
		key += fmt.Sprintf(".%d", st.requests)
	}
	return key
}

// failed books a request that failed, and returns nil once it is to be sent again.
func (m *completion) failed(r retry, err error) error {
	m.st.book(cutOff(m.ctx, err, m.size, m.came))
	m.void()
	m.st.flight.failed(err)
	if cause := context.Cause(m.ctx); errors.Is(cause, errInterrupted) {
		err = cause
	}
	if code := llm.CodeOf(err); code != "" {
		m.ended(code)
	}
	pause, ok := r.pause(m.ctx, err)
	if !ok {
		return r.last(err)
	}
	if err := m.reserveAgain(); err != nil {
		return err
	}
	return m.sleep(pause)
}

// sleep waits before the next try. The clock of a test stands while a step is at work,
// and a pause is a part of the step.
func (m *completion) sleep(pause time.Duration) error {
	if m.st.ex.rt.Clock != nil {
		return nil
	}
	m.st.flight.does(Pauses, time.Now().Add(pause))
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	}
}

// ended reports how a request ended, with "" for an answer.
func (m *completion) ended(code llm.Code) {
	if rt := m.st.ex.rt; rt.OnRequest != nil {
		rt.OnRequest(code)
	}
}

func (m *completion) reserveAgain() (err error) {
	m.free()
	m.free, err = m.st.ex.reserve(m.reserve)
	return err
}

// sink counts a piece of the answer and passes it on.
func (m *completion) sink(d llm.Delta) {
	before, tool := m.came, ""
	m.came += len(d.Text) + len(d.Reasoning)
	if d.Call != nil {
		tool = d.Call.Name
		m.came += len(d.Call.Name) + len(d.Call.Args)
	}
	m.st.flight.came(d.Text, tool, m.came-before)
	m.publish(d, false)
}

// void says that the pieces of the answer under way are void, if there are any.
func (m *completion) void() {
	if m.pieces > 0 {
		m.publish(llm.Delta{}, true)
	}
}

func (m *completion) publish(d llm.Delta, void bool) {
	ex, st := m.st.ex, m.st
	if m.pieces++; ex.rt.OnDelta != nil {
		ex.rt.OnDelta(Delta{
			Session: st.s.Key(), Run: ex.id, Path: st.asked.Path, Attempt: ex.attempt, Try: st.requests, N: m.pieces, Void: void, Agent: m.c.agent, Delta: d,
		})
	}
}

// defaultReply is the reservation for an answer whose length the provider does not limit.
const defaultReply = 4096

// callContext ends with the caller's context and with the execution.
func (ex *Execution) callContext(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	own := ctx.Done() != ex.life.ctx.Done() // the author derived it, perhaps from another one
	ctx, cancel := context.WithCancelCause(ctx)
	if !own {
		return ctx, cancel
	}
	stop := context.AfterFunc(ex.life.ctx, func() { cancel(context.Cause(ex.life.ctx)) })
	return ctx, func(cause error) { stop(); cancel(cause) }
}

// cutOff returns what a model call that failed with err is taken to have used,
// from the bytes of its prompt and of what came of its answer. It is nothing
// where the server said that it answers nothing.
func cutOff(ctx context.Context, err error, prompt, came int) session.Usage {
	silent := errors.Is(err, llm.CodeTruncated) || errors.Is(err, llm.CodeIdleTimeout) || errors.Is(err, llm.CodeTimeout)
	if came == 0 && !silent && ctx.Err() == nil {
		return session.Usage{}
	}
	return session.Usage{Calls: 1, Input: llm.Estimate(prompt), Output: llm.Estimate(came)}
}

// book charges the run with a call of the step that was cut off.
func (st *step) book(used session.Usage) {
	st.ex.mu.Lock()
	defer st.ex.mu.Unlock()
	st.lost = st.lost.Add(used)
	st.ex.account.book(used)
}

// bookKilled charges the calls of a model that former attempts may have been
// killed in, with all that one of them may have used; only the first step that
// is not recorded can be such a call. Where no limit is to be kept nothing is
// made up.
func (st *step) bookKilled(most int64) {
	ex := st.ex
	ex.mu.Lock()
	n := min(int64(ex.account.killed), int64(ex.attempt-max(ex.pos.newest, 1)))
	ex.account.killed = 0
	limited := ex.account.Limit.Tokens > 0
	ex.mu.Unlock()
	if n > 0 && limited {
		st.book(session.Usage{Calls: n, Input: n * most})
	}
}

// reserve sets tokens aside for a call; free gives them back, once.
func (ex *Execution) reserve(tokens int64) (free func(), err error) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	account, err := ex.account.Reserve(tokens)
	if err != nil {
		return func() {}, err
	}
	ex.account.Account = account
	return func() {
		ex.mu.Lock()
		defer ex.mu.Unlock()
		ex.account.Reserved -= tokens
	}, nil
}
