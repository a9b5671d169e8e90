package chain

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/models/tokens"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// Embedder makes vectors of texts for a tenant. It is an [llm.Embedder].
type Embedder struct {
	Tenant   session.Tenant
	Choices  []Choice // that may make them
	Models   llm.Models
	Breakers *Breakers
	Tokens   *tokens.Counter
	// Ended, if set, gets the outcome of each request; see engine.Runtime.OnRequest.
	Ended func(code llm.Code)
	// Unpaused disables the pause before a retry: the clock of a test stands still while
	// a step works.
	Unpaused bool
}

// Embed implements [llm.Embedder]. The same texts go to the same server of a pool.
func (e *Embedder) Embed(ctx context.Context, texts []string) (*llm.Embeddings, error) {
	if err := llm.ValidateTexts(texts); err != nil {
		return nil, err
	}
	key, size := sha256.New(), 0
	for _, t := range texts {
		size += len(t)
		_, _ = fmt.Fprintf(key, "%d %s", len(t), t)
	}
	m := &embedding{
		Chain: Chain{Breakers: e.Breakers, Choices: Placed(e.Choices, string(key.Sum(nil)))},
		by:    e, ctx: ctx, texts: texts, count: llm.Estimate(size),
	}
	err := m.Ask(ctx, m)
	return m.out, err
}

// embedding is a call for vectors.
type embedding struct {
	Chain
	by     *Embedder
	ctx    context.Context
	texts  []string
	count  int64 // the estimated tokens of texts
	client llm.Embedder
	out    *llm.Embeddings
}

// Turn implements [Asker].
func (m *embedding) Turn(c *Choice) (err error) {
	m.client, err = llm.EmbedderOf(m.ctx, m.by.Models, c.Provider)
	return err
}

// Send implements [Asker]. Unlike other calls, it also skips the last server while that
// is known to fail.
func (m *embedding) Send(r *Tries) error {
	c := m.Asked()
	if m.at+1 == len(m.Choices) && m.Breakers.open(&c.Provider) {
		return &llm.Error{Code: llm.CodeUnavailable, Final: true, Message: fmt.Sprintf("model %s failed %d times in a row; it is asked again after %v", c, breakAfter, breakFor)}
	}
	settle, err := m.Admit(m.ctx, string(m.by.Tenant), m.count, r)
	if err != nil {
		return err
	}
	if settle == nil {
		settle = func(int64) {}
	}
	r.Sent()
	out, err := m.client.Embed(m.ctx, m.texts)
	m.Breakers.Note(&c.Provider, err)
	if m.by.Ended != nil && (err == nil || llm.CodeOf(err) != "") {
		m.by.Ended(llm.CodeOf(err))
	}
	if err != nil {
		settle(Counted(err, CutOff(m.ctx, err, func() int64 { return m.count }, 0)).Input)
		return err
	}
	used := out.Usage.Tokens()
	if out.Uncounted {
		used = m.by.Tokens.Texts(tokens.Of(&c.Provider), m.texts...)
		if c.Cost == Priced && out.Usage.MicroUSD == 0 {
			out.Usage.MicroUSD = c.Price(session.Usage{Input: used})
		}
	}
	settle(used)
	m.charge(out)
	m.out = out
	return nil
}

// Pass implements [Asker]: it keeps no record.
func (m *embedding) Pass(*Choice, error) {}

// Again implements [Asker].
func (m *embedding) Again() error { return nil }

// Sleep implements [Asker]. The clock of a test stands still while a step works.
func (m *embedding) Sleep(pause time.Duration) error {
	if m.by.Unpaused {
		return nil
	}
	select {
	case <-time.After(pause):
		return nil
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	}
}

// charge prices vectors, and adds their cost to the step that requested them, if there is
// one.
func (m *embedding) charge(out *llm.Embeddings) {
	c := m.Asked()
	cost, prices := c.Bill(&out.Usage)
	v, ok := m.ctx.Value(vectorsKey{}).(*Vectors)
	if !ok {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.used = v.used.Add(session.Usage{
		CacheRead: out.Usage.CacheRead, CacheWrite: out.Usage.CacheWrite, Calls: 1, Input: out.Usage.Input, MicroUSD: out.Usage.MicroUSD,
	})
	v.model, v.named, v.cost, v.prices = out.Model, c.Name, cost, prices
}

// Vectors counts the usage of embedding models by a step that reads or writes a memory.
// The context of the step passes it through the store, which requests the vectors.
type Vectors struct {
	mu                         sync.Mutex
	used                       session.Usage
	model, named, cost, prices string
}

type vectorsKey struct{}

// CountVectors returns a context that counts requests for vectors, and their count.
func CountVectors(ctx context.Context) (context.Context, *Vectors) {
	v := &Vectors{}
	return context.WithValue(ctx, vectorsKey{}, v), v
}

// Record adds the cost of the vectors to the step's record.
func (v *Vectors) Record(d *journal.StepCompleted) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.used.Calls == 0 {
		return
	}
	d.Usage, d.Model, d.Named, d.Cost, d.Prices = d.Usage.Add(v.used), v.model, v.named, v.cost, v.prices
}

// CutOff estimates the usage of a model call that failed with err, from the tokens of its
// prompt and the received bytes of its answer. It is zero if the server reported that it
// does not answer.
func CutOff(ctx context.Context, err error, prompt func() int64, came int) session.Usage {
	silent := errors.Is(err, llm.CodeTruncated) || errors.Is(err, llm.CodeIdleTimeout) || errors.Is(err, llm.CodeTimeout)
	if came == 0 && !silent && ctx.Err() == nil {
		return session.Usage{}
	}
	return session.Usage{Calls: 1, Input: prompt(), Output: llm.Estimate(came)}
}

// Counted returns the usage of a failed call, with the counts of its server if it
// reported any before it failed.
func Counted(err error, taken session.Usage) session.Usage {
	e, ok := errors.AsType[*llm.Error](err)
	if !ok || e.Used.Tokens() == 0 {
		return taken
	}
	u := e.Used
	return session.Usage{
		Calls: 1, Input: u.Input, Output: max(u.Output, taken.Output), CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, MicroUSD: u.MicroUSD,
	}
}
