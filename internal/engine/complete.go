package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/internal/engine/transcript"
	"github.com/rathcluster/rath/internal/models/tokens"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// completion is a model call in flight.
type completion struct {
	chain   chain.Chain
	c       *transcript.Call
	st      *step
	ctx     context.Context // of the requests
	req     *llm.Request
	msgs    []llm.Message // as in the session, see show
	client  llm.Client    // of the choice
	resp    *llm.Response // the answer
	blind   bool          // images are omitted: a server rejected the request with them
	size    int           // of the request as JSON, in bytes
	reserve int64         // tokens
	free    func()
	settles func(used int64)    // reports usage to the limits of the request in flight; nil without limits
	came    int                 // bytes of the answer in flight
	pieces  uint64              // pieces of the answer passed to OnDelta
	live    transcript.LiveText // splits its thoughts from its text
	said    strings.Builder     // its text, if the call needs it
}

// complete makes the model call and returns the answer with the digest of the
// rendered request.
func (u *modelUse) complete(st *step, c *transcript.Call, s session.Session) (*llm.Response, blob.Digest, error) {
	m := &completion{chain: chain.Chain{Breakers: &st.ex.rt.breakers}, c: c, st: st, free: func() {}}
	if q := st.ex.rt.Quota; q != nil {
		if err := underQuota(st, q); err != nil {
			return nil, blob.Digest{}, err
		}
		defer chargeQuota(m, q)()
	}
	digest, err := m.prepare(s)
	if err != nil {
		return nil, digest, err
	}
	defer func() { m.free() }()
	if err := m.instruct(); err != nil { // before a request that costs money
		return nil, digest, err
	}
	defer m.settle(0) // of a request that panicked
	var cancel context.CancelCauseFunc
	m.ctx, cancel = st.ex.models.callContext(st.ctx)
	defer cancel(nil)
	if st.takesMessages { // otherwise no step would take the message, however often the call is made
		defer st.ex.signals.interruptible(st.messagesTo, cancel)()
	}
	err = m.chain.Ask(m.ctx, m)
	return m.resp, digest, cmp.Or(err, m.instruct()) // again after a call of half a day
}

// instruct stores the instructions of the request, and names them in the step's record.
// Its variables would otherwise be on the stack during the wait for the model.
//
//go:noinline
func (m *completion) instruct() (err error) {
	m.st.given, err = m.c.KeepInstructions(m.st.ctx, &transcript.Keeper{
		Blobs: m.st.ex.boxes.blobs(), Tenant: m.st.ex.home.Tenant, Stored: &m.st.ex.rt.stored, Redactor: m.redactor,
	})
	return err
}

// redactor masks the credentials of this process, and the keys of the servers that the
// call may ask.
func (m *completion) redactor() func(string) string {
	type keyed interface{ Redact(text string) string }
	var keys []keyed
	for i := range m.chain.Choices {
		// A model without a key, or without a name, fails when it is asked.
		if client, err := m.st.ex.rt.client(m.st.ctx, m.chain.Choices[i].Provider); err == nil {
			if k, ok := client.(keyed); ok {
				keys = append(keys, k)
			}
		}
	}
	secrets := m.st.ex.rt.secrets()
	return func(text string) string {
		text = llm.Redact(text, secrets...)
		for _, k := range keys {
			text = k.Redact(text)
		}
		return text
	}
}

// prepare renders the request and reserves its maximum usage.
func (m *completion) prepare(s session.Session) (blob.Digest, error) {
	ex := m.st.ex
	m.req = &llm.Request{Provider: *m.c.Provider, Tools: m.c.Tools, ToolChoice: m.c.Choice, Waits: m.waits}
	p := &m.req.Provider
	p.Model = ex.models.model(m.c)
	if m.c.Answer.Text != "" {
		p.ResponseFormat = nil // with a format, a server would start again, and cut again
	}
	msgs, digest, size, err := m.c.Shown.Render(m.c, s, p)
	if err != nil {
		return digest, fmt.Errorf("flow: render prompt: %w", err)
	}
	m.c.Size = size
	m.req.ThoughtsFrom = m.c.ThoughtsFrom
	m.msgs, m.req.Shared, m.size, m.req.CacheKey = msgs, m.c.Shared, size, m.c.CacheKey(m.st.s.Key().Tenant, msgs)
	if m.chain.Choices, err = ex.rt.choices(*p); err != nil {
		return digest, err
	}
	m.chain.Choices = chain.Placed(m.chain.Choices, m.req.CacheKey)
	if err := m.afford(); err != nil {
		return digest, err
	}
	m.reserve = cmp.Or(int64(m.chain.Choices[0].Provider.MaxTokens), defaultReply) + llm.Estimate(size)
	m.bookKilled(m.reserve, &m.chain.Choices[0])
	m.free, err = ex.models.reserve(m.reserve)
	return digest, err
}

// afford fails if a budget of money could not be enforced with one of the models, because
// the cost of its calls is unknown. Without a list of models the first answer shows
// whether it is known.
func (m *completion) afford() error {
	m.st.ex.mu.Lock()
	limit := m.st.ex.account.Limit.MicroUSD
	m.st.ex.mu.Unlock()
	if own := m.c.Account; own != nil {
		limit = max(limit, own.Limit.MicroUSD)
	}
	if limit == 0 || m.st.ex.rt.Choices == nil {
		return nil
	}
	for i := range m.chain.Choices {
		if c := &m.chain.Choices[i]; c.Cost == "" {
			return (journal.Account{Limit: run.Budget{MicroUSD: limit}, Unpriced: c.String()}).Check()
		}
	}
	return nil
}

// usable returns the reason why the choice cannot answer the request, or nil.
func (m *completion) usable(c *chain.Choice) error {
	n := llm.Estimate(m.size)
	if c.Context > 0 && n > c.Context/2 { // close to it, and the estimate from bytes may be a third off
		n = m.input()
	}
	switch {
	case c.Embeds:
		return &llm.Error{Code: llm.CodeInvalidRequest, Message: fmt.Sprintf("model %s only embeds texts; name another", c)}
	case c.NoTools && len(m.c.Tools) > 0:
		return &llm.Error{Code: llm.CodeInvalidRequest, Message: fmt.Sprintf("model %s cannot call tools, and the agent has some; name another, or write \"can: [tools]\" into the node's list if it can", c)}
	case c.Context > 0 && n*9/10 > c.Context: // certain by our count
		return &llm.Error{Code: llm.CodeContextLength, Message: fmt.Sprintf("model %s takes %d tokens, and the request has about %d", c, c.Context, n)}
	}
	return nil
}

// Turn implements [chain.Asker].
func (m *completion) Turn(c *chain.Choice) error {
	m.st.named = c.Name
	m.req.Provider = c.Provider
	if err := m.usable(c); err != nil {
		return err
	}
	if err := m.show(c); err != nil {
		return err
	}
	var err error
	m.client, err = m.st.ex.rt.client(m.st.ctx, c.Provider)
	return err
}

// Send implements [chain.Asker].
func (m *completion) Send(r *chain.Tries) error {
	c := m.chain.Asked()
	if c.Limiter != nil {
		m.st.flight.WaitForLimit(c.String(), time.Now().Add(m.chain.Patience(r)))
	}
	tokens := cmp.Or(int64(c.Provider.MaxTokens), defaultReply) + llm.Estimate(m.size)
	var err error
	if m.settles, err = m.chain.Admit(m.ctx, string(m.st.s.Key().Tenant), tokens, r); err != nil {
		return err
	}
	r.Sent()
	m.begin()
	resp, err := m.client.Complete(m.ctx, m.req, m.sink)
	return m.received(resp, err)
}

// received takes the outcome of a request. Its variables would otherwise be on the stack
// during the wait for the model.
//
//go:noinline
func (m *completion) received(resp *llm.Response, err error) error {
	m.chain.Breakers.Note(&m.chain.Asked().Provider, err)
	if err == nil {
		m.ended("")
		m.deliver(llm.Delta{}, m.live.Finish)
		m.charge(resp)
		m.resp = resp
		if thought, answer := transcript.SplitThoughts(resp.Text, m.c.Prompt); thought != "" || len(answer) < len(resp.Text) {
			resp.Reasoning, resp.Text = resp.Reasoning+thought, answer
			resp.Opaque = "" // it refers to byte offsets of the text
		}
		return nil
	}
	refused, _ := errors.AsType[*llm.Error](err)
	err = m.failed(err)
	if refused != nil && refused.Thoughts && errors.Is(err, llm.CodeInvalidRequest) && m.c.ThoughtsFrom < len(m.msgs) {
		// They stay in the session, which would be rejected from now on. The agent's next
		// requests omit them as well, so that all requests have the same prefix.
		m.c.ThoughtsFrom = len(m.msgs)
		m.req.ThoughtsFrom = m.c.ThoughtsFrom
		return chain.ErrOtherwise
	}
	if !m.blind && m.sees() && errors.Is(err, llm.CodeInvalidRequest) {
		// An image may be the reason. It stays in the session, which would be rejected
		// from now on.
		m.blind = true
		return chain.ErrOtherwise
	}
	return err
}

// Pass implements [chain.Asker].
func (m *completion) Pass(c *chain.Choice, err error) {
	m.st.passed = append(m.st.passed, journal.PassedModel{Code: run.Code(llm.CodeOf(err)), Name: c.String()})
}

// settle reports the tokens that the request used to the limits that admitted it.
func (m *completion) settle(used int64) {
	if m.settles != nil {
		m.settles(used)
		m.settles = nil
	}
}

// begin records that the request is sent.
func (m *completion) begin() {
	m.st.requests++
	m.req.Try, m.req.StepKey = m.st.requests, m.key()
	m.came, m.pieces, m.live = 0, 0, transcript.LiveText{Prompt: m.c.Prompt}
	m.restart()
	m.st.flight.AskModel(m.req.Provider.Model, m.st.requests)
}

// waits reports the time until which the client waits for the first piece of the answer.
func (m *completion) waits(until time.Time) { m.st.flight.SetDoing(live.Asks, until) }

// key returns the idempotency key of the current request.
func (m *completion) key() string {
	st := m.st
	key := fmt.Sprintf("%s/%s/%d", st.ex.id, st.asked.Path, st.ex.attempt)
	if st.requests > 1 {
		key += fmt.Sprintf(".%d", st.requests)
	}
	return key
}

// failed books a failed request, and returns its error.
func (m *completion) failed(err error) error {
	used := chain.Counted(err, chain.CutOff(m.ctx, err, m.input, m.came))
	m.settle(used.Input + used.Output)
	m.book(m.chain.Asked().Estimate(used))
	m.void()
	m.st.flight.SetError(err)
	if cause := context.Cause(m.ctx); errors.Is(cause, errInterrupted) {
		err = cause
	}
	if code := llm.CodeOf(err); code != "" {
		m.ended(code)
	}
	return err
}

// charge prices an answer. If the server counts no tokens, the answer is booked like a
// call that was cut off, with counts made here.
func (m *completion) charge(resp *llm.Response) {
	c := m.chain.Asked()
	if !resp.Uncounted {
		m.st.ex.rt.tokens.Stated(m.req, m.size, resp.Usage.Input)
		m.settle(resp.Usage.Tokens())
		m.st.cost, m.st.prices = c.Bill(&resp.Usage)
		return
	}
	said := []string{resp.Text, resp.Reasoning}
	for _, call := range resp.Calls {
		said = append(said, call.Name, call.Args)
	}
	u := session.Usage{Input: m.input(), Output: m.st.ex.rt.tokens.Texts(tokens.Of(&m.req.Provider), said...), MicroUSD: resp.Usage.MicroUSD}
	m.settle(u.Tokens())
	m.st.cost, m.st.prices = c.Bill(&u)
	resp.Usage = session.Usage{}
	m.book(session.Usage{Calls: 1, Input: u.Input, Output: u.Output, MicroUSD: u.MicroUSD})
}

// input estimates the tokens of the request: from the server's count for the agent's last
// one, or else by a count of our own.
func (m *completion) input() int64 {
	if w := &m.c.Window; w.Bytes > 0 {
		return w.Estimate(m.size)
	}
	r := *m.req
	r.Messages = m.msgs
	return m.st.ex.rt.tokens.Request(&r)
}

// Sleep implements [chain.Asker]. The clock of a test stands still while a step works,
// and a pause is part of the step.
func (m *completion) Sleep(pause time.Duration) error {
	if m.st.ex.rt.Clock != nil {
		return nil
	}
	m.st.flight.SetDoing(live.Pauses, time.Now().Add(pause))
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	}
}

// ended reports the outcome of a request, with "" for an answer.
func (m *completion) ended(code llm.Code) {
	if rt := m.st.ex.rt; rt.OnRequest != nil {
		rt.OnRequest(code)
	}
}

// Again implements [chain.Asker].
func (m *completion) Again() (err error) {
	m.free()
	m.free, err = m.st.ex.models.reserve(m.reserve)
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
	m.st.flight.AddAnswer(tool, m.came-before)
	if d.Text == "" {
		m.publish(d, false)
		return
	}
	text := d.Text
	m.deliver(d, func() (string, string, bool) { return m.live.Take(text) })
}

// deliver passes a piece of the answer on, with its text split into thought and answer.
func (m *completion) deliver(d llm.Delta, parted func() (thought, answer string, void bool)) {
	thought, answer, void := parted()
	d.Reasoning, d.Text = d.Reasoning+thought, answer
	if void {
		m.publish(llm.Delta{}, true)
		m.restart()
	}
	if d != (llm.Delta{}) {
		m.publish(d, false)
	}
	if m.c.Partial != nil && (void || answer != "") {
		m.said.WriteString(answer)
		m.c.Partial(m.said.String())
	}
}

// restart resets the text of the answer in flight.
func (m *completion) restart() {
	m.said.Reset()
	m.said.WriteString(m.c.Answer.Text)
}

// void publishes that the pieces of the answer in flight are void, if there are any.
func (m *completion) void() {
	if m.pieces > 0 {
		m.publish(llm.Delta{}, true)
		if m.said.Len() > 0 {
			m.c.Partial("")
		}
	}
}

func (m *completion) publish(d llm.Delta, void bool) {
	ex, st := m.st.ex, m.st
	m.pieces++
	st.flight.AddDelta(m.pieces, d.Text, void) // before it is published: who then reads the report lacks no text
	if ex.rt.OnDelta != nil {
		ex.rt.OnDelta(Delta{
			Session: st.s.Key(), Run: ex.id, Path: st.asked.Path, Attempt: ex.attempt, Try: st.requests, N: m.pieces, Void: void, Agent: m.c.Agent, Delta: d,
		})
	}
}

// defaultReply is the reservation for an answer whose length the provider does not limit.
const defaultReply = 4096

// callContext returns a context that ends with the caller's context and with the
// execution.
func (m *modelUse) callContext(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	own := ctx.Done() != m.ex.life.ctx.Done() // the author derived it, perhaps from another context
	ctx, cancel := context.WithCancelCause(ctx)
	if !own {
		return ctx, cancel
	}
	stop := context.AfterFunc(m.ex.life.ctx, func() { cancel(context.Cause(m.ex.life.ctx)) })
	return ctx, func(cause error) { stop(); cancel(cause) }
}

// book charges the run with a call that was cut off, or not counted.
func (m *completion) book(used session.Usage) {
	st := m.st
	st.ex.mu.Lock()
	defer st.ex.mu.Unlock()
	st.lost = st.lost.Add(used)
	st.ex.account.book(used)
}

// bookKilled charges the model calls during which former attempts may have been killed,
// with the maximum usage of one call each. Only the first step that is not recorded can
// be such a call. Without a limit to enforce it books no estimate.
func (m *completion) bookKilled(most int64, c *chain.Choice) {
	ex := m.st.ex
	ex.mu.Lock()
	n := min(int64(ex.account.killed), int64(ex.attempt-max(ex.pos.newest, 1)))
	ex.account.killed = 0
	limited := ex.account.Limit.Tokens > 0 || ex.account.Limit.MicroUSD > 0 && c.Cost == chain.Priced
	ex.mu.Unlock()
	if n > 0 && limited {
		m.book(c.Estimate(session.Usage{Calls: n, Input: n * most}))
	}
}

// reserve reserves tokens for a call; free releases them, once.
func (m *modelUse) reserve(tokens int64) (free func(), err error) {
	ex := m.ex
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

// model returns the model named by the call, or else by the task, or else by the node.
func (m *modelUse) model(c *transcript.Call) string {
	return cmp.Or(c.Provider.Model, m.ex.around.outermost().Model, m.ex.rt.Model)
}

// choices returns the models that the call may ask.
func (m *modelUse) choices(c *transcript.Call) ([]chain.Choice, error) {
	p := *c.Provider
	p.Model = m.model(c)
	return m.ex.rt.choices(p)
}
