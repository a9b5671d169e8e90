package engine

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

// Embedder returns what makes vectors of texts for a tenant with a model that the node
// knows. Requests wait for the model's limits, are sent again as those for answers are,
// and have in their usage what they cost. While the model's server is known to fail
// nothing is sent: the caller has another way to find what it looks for.
func (rt *Runtime) Embedder(ctx context.Context, t session.Tenant, model string) (llm.Embedder, error) {
	if rt.Models == nil {
		return nil, errors.New("flow: no models: set inprocess.Runner.Models")
	}
	all, err := rt.choices(llm.Provider{Model: model})
	if err != nil {
		return nil, err
	}
	if c := all[0]; c.Name != "" && !c.Embeds {
		return nil, &llm.Error{Code: llm.CodeInvalidRequest, Message: fmt.Sprintf("model %s makes no vectors of texts; name one with \"can: [embeddings]\" in the node's list", c.Name)}
	}
	return &embedder{rt: rt, tenant: t, choices: all}, nil
}

type embedder struct {
	rt      *Runtime
	tenant  session.Tenant
	choices []Choice
}

// Embed implements [llm.Embedder]. The same texts go to the same server of a pool.
func (e *embedder) Embed(ctx context.Context, texts []string) (*llm.Embeddings, error) {
	if err := llm.ValidateTexts(texts); err != nil {
		return nil, err
	}
	key, size := sha256.New(), 0
	for _, t := range texts {
		size += len(t)
		_, _ = fmt.Fprintf(key, "%d %s", len(t), t)
	}
	m := &embedding{
		chain: chain{rt: e.rt, choices: placed(e.choices, string(key.Sum(nil)))},
		ctx:   ctx, tenant: e.tenant, texts: texts, count: llm.Estimate(size),
	}
	err := m.ask(ctx, m)
	return m.out, err
}

// embedding is a call for vectors.
type embedding struct {
	chain
	ctx    context.Context
	tenant session.Tenant
	texts  []string
	count  int64 // tokens that they are taken to have
	client llm.Embedder
	out    *llm.Embeddings
}

// turn implements [asker].
func (m *embedding) turn(c *Choice) (err error) {
	m.client, err = llm.EmbedderOf(m.ctx, m.rt.Models, c.Provider)
	return err
}

// send implements [asker]. The last server is not asked either while it is known to fail.
func (m *embedding) send(r *retry) error {
	c := &m.choices[m.at]
	if m.at+1 == len(m.choices) && m.rt.breakers.open(&c.Provider) {
		return &llm.Error{Code: llm.CodeUnavailable, Final: true, Message: fmt.Sprintf("model %s failed %d times in a row; it is asked again after %v", c, breakAfter, breakFor)}
	}
	settle, err := m.admit(m.ctx, string(m.tenant), m.count, r)
	if err != nil {
		return err
	}
	if settle == nil {
		settle = func(int64) {}
	}
	r.try++
	r.here++
	out, err := m.client.Embed(m.ctx, m.texts)
	m.rt.breakers.note(&c.Provider, err)
	if m.rt.OnRequest != nil && (err == nil || llm.CodeOf(err) != "") {
		m.rt.OnRequest(llm.CodeOf(err))
	}
	if err != nil {
		settle(counted(err, cutOff(m.ctx, err, func() int64 { return m.count }, 0)).Input)
		return err
	}
	used := out.Usage.Tokens()
	if out.Uncounted {
		used = m.rt.tokens.Texts(tokens.Of(&c.Provider), m.texts...)
		if c.Cost == priced && out.Usage.MicroUSD == 0 {
			out.Usage.MicroUSD = c.Price(session.Usage{Input: used})
		}
	}
	settle(used)
	m.charge(out)
	m.out = out
	return nil
}

// pass implements [asker]: no record is kept of it.
func (m *embedding) pass(*Choice, error) {}

// again implements [asker].
func (m *embedding) again() error { return nil }

// sleep implements [asker]. The clock of a test stands while a step is at work.
func (m *embedding) sleep(pause time.Duration) error {
	if m.rt.Clock != nil {
		return nil
	}
	select {
	case <-time.After(pause):
		return nil
	case <-m.ctx.Done():
		return context.Cause(m.ctx)
	}
}

// charge puts a price to vectors, and tells the step on whose behalf vectors were asked for, if there is one, what they
// cost.
func (m *embedding) charge(out *llm.Embeddings) {
	c := &m.choices[m.at]
	cost, prices := c.bill(&out.Usage)
	v, ok := m.ctx.Value(vectorsKey{}).(*vectors)
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

// vectors are what a step that reads or writes a memory used of a model for vectors. It
// goes with the context of the step through the store, which asks for them.
type vectors struct {
	mu                         sync.Mutex
	used                       session.Usage
	model, named, cost, prices string
}

type vectorsKey struct{}

// record has the step's record say what the vectors cost.
func (v *vectors) record(d *journal.StepCompleted) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.used.Calls == 0 {
		return
	}
	d.Usage, d.Model, d.Named, d.Cost, d.Prices = d.Usage.Add(v.used), v.model, v.named, v.cost, v.prices
}
