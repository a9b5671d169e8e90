package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// call is a model call as the code asks for it.
type call struct {
	agent    string
	prompt   string
	provider *llm.Provider
	tools    []llm.ToolSpec
	notes    note
	ask      string           // a last user message that is not part of the session
	more     bool             // it answers what the user said after the agent was done
	shown    transcript       // what the calls before this one rendered
	table    *tool.Table      // of an agent
	account  *journal.Account // of an agent's own budget; nil without one
}

// digest identifies the logical arguments; the session is the step's own.
func (c *call) digest() string {
	names := make([]string, len(c.tools))
	for i, t := range c.tools {
		names[i] = t.Name
	}
	parts := []any{c.prompt, c.provider.Model, names, c.notes.Digest.String(), c.ask}
	if c.more {
		parts = append(parts, "more")
	}
	data, err := json.Marshal(parts)
	if err != nil {
		return ""
	}
	return blob.Sum(data).Short()
}

// maxTries is how often a completion that broke off is asked for again within
// one attempt.
const maxTries = 3

// completion is a model call under way.
type completion struct {
	c       *call
	st      *step
	ctx     context.Context // of the requests
	req     *llm.Request
	size    int   // of the request as JSON, in bytes
	reserve int64 // tokens
	free    func()
	spent   int64 // tokens, by answers that were cut off
	came    int   // bytes of the answer under way
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
	client, settle, err := m.client()
	if err != nil {
		return nil, digest, err
	}
	var cancel context.CancelCauseFunc
	m.ctx, cancel = st.ex.callContext(st.ctx)
	defer cancel(nil)
	if st.hears { // else no step would take the message, however often the call is made
		defer st.ex.interruptible(st.heard, cancel)()
	}
	resp, err := m.ask(client)
	settle(int(m.spent))
	return resp, digest, err
}

// prepare renders the request and reserves what it may use.
func (m *completion) prepare(s session.Session) (blob.Digest, error) {
	ex := m.st.ex
	m.req = &llm.Request{Provider: *m.c.provider, Tools: m.c.tools, Again: m.again}
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

// client resolves the provider and waits for its rate limit. The caller tells
// settle what the call used.
func (m *completion) client() (client llm.Client, settle func(used int), err error) {
	ex, p := m.st.ex, &m.req.Provider
	if client, err = ex.rt.client(m.st.ctx, *p); err != nil {
		return nil, nil, err
	}
	settle = func(int) {}
	if ex.rt.Limiter != nil {
		settle, err = ex.rt.Limiter.Acquire(m.st.ctx, p.BaseURL+"/"+p.Model, int(m.reserve))
	}
	return client, settle, err
}

// ask sends the request, again if its answer breaks off.
func (m *completion) ask(client llm.Client) (*llm.Response, error) {
	for try := 1; ; try++ {
		if m.ctx.Err() != nil { // nothing was sent
			return nil, context.Cause(m.ctx)
		}
		m.came, m.req.StepKey = 0, m.st.key()
		resp, err := client.Complete(m.ctx, m.req, m.sink)
		if err == nil {
			m.spent += resp.Usage.Total()
			return resp, nil
		}
		if err = m.failed(try, err); err != nil {
			return nil, err
		}
	}
}

// key names the next request of the step.
func (st *step) key() string {
	// Also the one before a message that interrupted counts.
	st.requests++
	key := fmt.Sprintf("%s/%s/%d", st.ex.id, st.asked.Path, st.ex.attempt)
	if st.requests > 1 {
		key += fmt.Sprintf(".%d", st.requests)
	}
	return key
}

// failed books a request that failed, and returns nil if it is to be sent again.
func (m *completion) failed(try int, err error) error {
	cut := cutOff(m.ctx, err, m.size, m.came)
	m.st.book(cut)
	m.spent += cut.Tokens()
	if cause := context.Cause(m.ctx); errors.Is(cause, errInterrupted) {
		err = cause
	}
	broken := errors.Is(err, llm.CodeTruncated) || errors.Is(err, llm.CodeIdleTimeout) || errors.Is(err, llm.CodeMalformed)
	if try >= maxTries || !broken || m.ctx.Err() != nil {
		return err
	}
	return m.reserveAgain()
}

// again books a try that the client makes by itself.
func (m *completion) again(failed *llm.Error) error {
	cut := cutOff(m.ctx, failed, m.size, 0)
	m.st.book(cut)
	m.spent += cut.Tokens()
	return m.reserveAgain()
}

func (m *completion) reserveAgain() (err error) {
	m.free()
	m.free, err = m.st.ex.reserve(m.reserve)
	return err
}

// sink counts a piece of the answer and passes it on.
func (m *completion) sink(d llm.Delta) {
	m.came += len(d.Text) + len(d.Reasoning)
	if d.Call != nil {
		m.came += len(d.Call.Name) + len(d.Call.Args)
	}
	if ex, st := m.st.ex, m.st; ex.rt.OnDelta != nil {
		ex.rt.OnDelta(Delta{Session: st.s.Key(), Run: ex.id, Path: st.asked.Path, Attempt: ex.attempt, Agent: m.c.agent, Delta: d})
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
