package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/tokens"
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
	c := all[0]
	if c.Name != "" && !c.Embeds {
		return nil, &llm.Error{Code: llm.CodeInvalidRequest, Message: fmt.Sprintf("model %s makes no vectors of texts; name one with \"can: [embeddings]\" in the node's list", c.Name)}
	}
	e, err := llm.EmbedderOf(ctx, rt.Models, c.Provider)
	if err != nil {
		return nil, err
	}
	return &embedder{rt: rt, tenant: t, c: c, e: e}, nil
}

type embedder struct {
	rt     *Runtime
	tenant session.Tenant
	c      Choice
	e      llm.Embedder
}

// Embed implements [llm.Embedder].
func (m *embedder) Embed(ctx context.Context, texts []string) (*llm.Embeddings, error) {
	if err := llm.ValidateTexts(texts); err != nil {
		return nil, err
	}
	size := 0
	for _, t := range texts {
		size += len(t)
	}
	r := retry{began: time.Now()}
	for {
		if m.rt.breakers.open(&m.c.Provider) {
			return nil, r.last(&llm.Error{Code: llm.CodeUnavailable, Final: true, Message: fmt.Sprintf("model %s failed %d times in a row; it is asked again after %v", &m.c, breakAfter, breakFor)})
		}
		out, err := m.once(ctx, texts, llm.Estimate(size), &r)
		if err == nil {
			cost, prices := m.c.bill(&out.Usage)
			m.charge(ctx, out, cost, prices)
			return out, nil
		}
		pause, ok := r.pause(ctx, m.c.Retries, err)
		if !ok {
			return nil, r.last(err)
		}
		if m.rt.Clock != nil {
			continue // it stands while a step is at work
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// once sends one request within the limits of the model.
func (m *embedder) once(ctx context.Context, texts []string, count int64, r *retry) (*llm.Embeddings, error) {
	settle := func(int64) {}
	if m.c.Limiter != nil {
		var err error
		if settle, err = m.c.admit(ctx, string(m.tenant), count, m.c.Retries.orDefault().Within-time.Since(r.began)); err != nil {
			return nil, err
		}
	}
	r.try++
	r.here++
	out, err := m.e.Embed(ctx, texts)
	m.rt.breakers.note(&m.c.Provider, err)
	if m.rt.OnRequest != nil && (err == nil || llm.CodeOf(err) != "") {
		m.rt.OnRequest(llm.CodeOf(err))
	}
	switch {
	case err != nil:
		settle(counted(err, cutOff(ctx, err, func() int64 { return count }, 0)).Input)
	case out.Uncounted:
		count = m.rt.tokens.Texts(tokens.Of(&m.c.Provider), texts...)
		settle(count)
		if m.c.Cost == priced && out.Usage.MicroUSD == 0 {
			out.Usage.MicroUSD = m.c.Price(llm.Usage{Input: count})
		}
	default:
		settle(out.Usage.Total())
	}
	return out, err
}

// charge tells the step on whose behalf vectors were asked for, if there is one, what they
// cost.
func (m *embedder) charge(ctx context.Context, out *llm.Embeddings, cost, prices string) {
	v, ok := ctx.Value(vectorsKey{}).(*vectors)
	if !ok {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.used = v.used.Add(session.Usage{
		CacheRead: out.Usage.CacheRead, CacheWrite: out.Usage.CacheWrite, Calls: 1, Input: out.Usage.Input, MicroUSD: out.Usage.MicroUSD,
	})
	v.model, v.named, v.cost, v.prices = out.Model, m.c.Name, cost, prices
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
