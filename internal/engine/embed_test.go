package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// vectorModels makes vectors after its failures.
type vectorModels struct {
	asked int
	fails []error // of the first requests
	bare  bool    // the server counts no tokens
}

func (m *vectorModels) Client(context.Context, llm.Provider) (llm.Client, error) { return nil, nil }

func (m *vectorModels) Embedder(context.Context, llm.Provider) (llm.Embedder, error) { return m, nil }

func (m *vectorModels) Embed(context.Context, []string) (*llm.Embeddings, error) {
	if m.asked++; m.asked <= len(m.fails) {
		return nil, m.fails[m.asked-1]
	}
	out := &llm.Embeddings{Vectors: [][]float32{{1}}, Usage: session.Usage{Input: 10}}
	if m.bare {
		out.Usage, out.Uncounted = session.Usage{}, true
	}
	return out, nil
}

// gauge is a limiter that admits and counts all requests.
type gauge struct{ reserved, used int64 }

func (g *gauge) Acquire(_ context.Context, _ string, tokens int64) (func(int64), error) {
	g.reserved += tokens
	return func(used int64) { g.used += used }, nil
}

// TestEmbedder: requests for vectors keep to the limits, are retried like others, and
// cost the list's price. None is sent to a server that is known to fail.
func TestEmbedder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &llm.Error{Code: llm.CodeOverloaded}
		m, g := &vectorModels{fails: []error{busy, busy}}, &gauge{}
		choice := chain.Choice{Name: "v", Embeds: true, Cost: "priced", Price: func(u session.Usage) int64 { return u.Input * 2 }, Limiter: g}
		ended := 0
		rt := &inprocess.Runtime{Runtime: engine.Runtime{Models: m, OnRequest: func(llm.Code) { ended++ }, Choices: func(p llm.Provider) ([]chain.Choice, error) {
			choice.Provider = p
			return []chain.Choice{choice}, nil
		}}}
		e, err := rt.Runtime.Embedder(t.Context(), "acme", "v")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		out, err := e.Embed(t.Context(), []string{"eight by", "tes"})
		if err != nil || out.Usage.MicroUSD != 20 || m.asked != 3 || ended != 3 || time.Since(began) < 1500*time.Millisecond {
			t.Errorf("%+v, %v after %d requests and %v", out, err, m.asked, time.Since(began))
		}
		if g.reserved != 9 || g.used != 10 {
			t.Errorf("the limits have %d reserved, %d used", g.reserved, g.used)
		}
		m.bare = true
		if out, err := e.Embed(t.Context(), []string{"eight by", "tes"}); err != nil || out.Usage != (session.Usage{MicroUSD: 6}) || g.used != 13 {
			t.Errorf("uncounted: %+v, %v, %d used", out, err, g.used)
		}

		// An invalid request is sent once; to a server that fails five times, five times.
		m.asked, m.fails = 0, []error{&llm.Error{Code: llm.CodeAuth}}
		if _, err := e.Embed(t.Context(), []string{"a"}); !errors.Is(err, llm.CodeAuth) || m.asked != 1 {
			t.Errorf("%v after %d requests", err, m.asked)
		}
		m.asked, m.fails = 0, []error{busy, busy, busy, busy, busy}
		for range 3 {
			if _, err := e.Embed(t.Context(), []string{"a"}); !errors.Is(err, llm.CodeOverloaded) && !errors.Is(err, llm.CodeUnavailable) {
				t.Error(err)
			}
		}
		if m.asked != 5 {
			t.Errorf("a failing server got %d requests", m.asked)
		}
		time.Sleep(time.Minute)
		if _, err := e.Embed(t.Context(), []string{"a"}); err != nil || m.asked != 6 {
			t.Errorf("%v after %d requests", err, m.asked)
		}

		asked := m.asked
		ctx, cancel := context.WithCancelCause(t.Context())
		m.asked, m.fails = 0, []error{busy, busy}
		stop := errors.New("enough")
		time.AfterFunc(time.Millisecond, func() { cancel(stop) })
		if _, err := e.Embed(ctx, []string{"a"}); !errors.Is(err, stop) || m.asked != 1 {
			t.Errorf("%v after %d requests of %d", err, m.asked, asked)
		}
		choice.Embeds = false
		if _, err := rt.Runtime.Embedder(t.Context(), "acme", "v"); !errors.Is(err, llm.CodeInvalidRequest) {
			t.Error(err)
		}
	})
}

// TestEmbedderPool: in a pool of embedding servers, the same texts go to one server,
// others are spread, and those of a failing server go to the next one; while all are
// known to fail no request is sent. The shared limit is waited for once.
func TestEmbedderPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, down := []string{}, map[string]bool{}
		rt := &inprocess.Runtime{Runtime: engine.Runtime{Models: vectorServers(func(url string) error {
			if asked = append(asked, url); down[url] {
				return &llm.Error{Code: llm.CodeOverloaded}
			}
			return nil
		})}}
		var all []chain.Choice
		for _, url := range []string{"http://a/v1", "http://b/v1", "http://c/v1"} {
			all = append(all, chain.Choice{Name: "v", Embeds: true, Provider: llm.Provider{Model: "v", BaseURL: url}})
		}
		rt.Runtime.Choices = offering(all...)
		e, err := rt.Runtime.Embedder(t.Context(), "acme", "v")
		if err != nil {
			t.Fatal(err)
		}
		at := func(text string) (string, error) {
			asked = nil
			_, err := e.Embed(t.Context(), []string{text})
			return strings.Join(asked, " "), err
		}
		spread := map[string]int{}
		for i := range 60 {
			first, err := at(fmt.Sprint("text ", i))
			if again, _ := at(fmt.Sprint("text ", i)); err != nil || first != again {
				t.Fatalf("text %d went to %s and then to %s, %v", i, first, again, err)
			}
			spread[first]++
		}
		if len(spread) != 3 || spread["http://a/v1"] < 5 || spread["http://b/v1"] < 5 || spread["http://c/v1"] < 5 {
			t.Errorf("60 texts are spread as %v", spread)
		}
		down["http://a/v1"] = true
		for i := range 60 {
			got, err := at(fmt.Sprint("text ", i))
			if err != nil || strings.HasSuffix(got, "http://a/v1") || strings.Count(got, "a/v1") > 2 {
				t.Errorf("text %d went to %s, %v", i, got, err)
			}
		}
		if got, err := at("text 0"); err != nil || strings.Contains(got, "a/v1") {
			t.Errorf("a server that is known to fail is asked: %s, %v", got, err)
		}
		for url := range spread {
			down[url] = true
		}
		for range 20 {
			_, _ = at("text 0")
		}
		if got, err := at("text 0"); got != "" || !errors.Is(err, llm.CodeUnavailable) {
			t.Errorf("all servers are known to fail, and %q is asked: %v", got, err)
		}

		for i := range all {
			all[i].Limiter = never{}
		}
		time.Sleep(time.Hour)
		rt.Runtime.Choices = offering(all...)
		if e, err = rt.Runtime.Embedder(t.Context(), "acme", "v"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if got, err := at("text 0"); got != "" || !errors.Is(err, llm.CodeRateLimited) || time.Since(began) != 30*time.Minute {
			t.Errorf("%q was asked, %v after %v", got, err, time.Since(began))
		}
	})
}

// vectorServers makes vectors unless the function fails.
type vectorServers func(url string) error

func (vectorServers) Client(context.Context, llm.Provider) (llm.Client, error) { return nil, nil }

func (m vectorServers) Embedder(_ context.Context, p llm.Provider) (llm.Embedder, error) {
	return vectorServer{m, p.BaseURL}, nil
}

type vectorServer struct {
	ask vectorServers
	url string
}

func (m vectorServer) Embed(context.Context, []string) (*llm.Embeddings, error) {
	if err := m.ask(m.url); err != nil {
		return nil, err
	}
	return &llm.Embeddings{Vectors: [][]float32{{1}}, Usage: session.Usage{Input: 1}}, nil
}

// never is a limiter that admits no request.
type never struct{}

func (never) Acquire(ctx context.Context, _ string, _ int64) (func(int64), error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// vectorMemory requests the vector of each text that it gets.
type vectorMemory struct {
	memory.Store
	e llm.Embedder
}

func (m vectorMemory) Write(ctx context.Context, uri, text string, from memory.Origin) error {
	if _, err := m.e.Embed(ctx, []string{text}); err != nil {
		return err
	}
	return m.Store.Write(ctx, uri, text, from)
}

func (m vectorMemory) Find(ctx context.Context, q memory.Query) ([]memory.Hit, error) {
	if _, err := m.e.Embed(ctx, []string{q.Text}); err != nil {
		return nil, err
	}
	return m.Store.Find(ctx, q)
}

// charged is a quota that allows each call.
type charged struct{ used session.Usage }

func (c *charged) Begin(context.Context, session.Tenant) (*journal.Wait, error) { return nil, nil }

func (c *charged) Charge(_ context.Context, _ session.Tenant, used session.Usage) {
	c.used = c.used.Add(used)
}

// TestVectorsAreCharged: the cost of a memory's vectors is in the records of the steps
// that needed them, in the run's end and in the quota, and a replay adds none.
func TestVectorsAreCharged(t *testing.T) {
	notes, vectors := notebook.New(nil), &vectorModels{}
	var w world
	blobs := blob.NewMemory()
	var quota charged
	process := func() *inprocess.Runtime {
		rt := w.runtime(vectors)
		rt.Runtime.Quota = &quota
		rt.Runtime.Blobs = func(session.Tenant) blob.Store { return blobs }
		choice := chain.Choice{Name: "v", Embeds: true, Cost: "priced", Prices: "2026-11-01", Price: func(u session.Usage) int64 { return u.Input * 2 }}
		rt.Runtime.Choices = func(p llm.Provider) ([]chain.Choice, error) {
			choice.Provider = p
			return []chain.Choice{choice}, nil
		}
		rt.Runtime.Memory = func(ctx context.Context, of session.Tenant, _ string) (memory.Store, error) {
			e, err := rt.Runtime.Embedder(ctx, of, "v")
			return vectorMemory{notes, e}, err
		}
		return rt
	}
	away := errors.New("the process dies")
	work := func(ctx context.Context, s session.Session) (session.Session, error) {
		if _, err := flow.Remember(ctx, "m", "prefs", "Likes dark colours."); err != nil {
			return s, err
		}
		hits, err := flow.Recall(ctx, "m", "which colours?", 1)
		if err != nil || len(hits) != 1 {
			return s, fmt.Errorf("%d hits: %w", len(hits), err)
		}
		if away != nil {
			return s, errors.Join(away, session.ErrUnavailable)
		}
		return s.With(session.UserText("done")), nil
	}
	forward(t, t.Context(), start(t, process(), work), run.Running)
	away = nil
	forward(t, t.Context(), start(t, process(), work, resume), run.Succeeded)
	each, told := session.Usage{Calls: 1, Input: 10, MicroUSD: 20}, 0
	for _, d := range w.steps(t, home) {
		if d.Kind != journal.StepRemember && d.Kind != journal.StepRecall {
			continue
		}
		if told++; d.Usage != each || d.Cost != "priced" || d.Prices != "2026-11-01" || d.Named != "v" {
			t.Errorf("%s used %+v of %q, cost %q by the prices of %q", d.Kind, d.Usage, d.Named, d.Cost, d.Prices)
		}
	}
	if told != 2 || vectors.asked != 2 {
		t.Errorf("%d steps with a memory, %d requests", told, vectors.asked)
	}
	if got := ended(t, &w).Usage; got != each.Add(each) {
		t.Errorf("the run used %+v", got)
	}
	if quota.used != each.Add(each) {
		t.Errorf("the quota counts %+v", quota.used)
	}
}
