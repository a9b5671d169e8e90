package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/llm"
)

// vectorModels make vectors as often as they do not fail.
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
	out := &llm.Embeddings{Vectors: [][]float32{{1}}, Usage: llm.Usage{Input: 10}}
	if m.bare {
		out.Usage, out.Uncounted = llm.Usage{}, true
	}
	return out, nil
}

// gauge is a limiter that lets everything through, and counts.
type gauge struct{ reserved, used int64 }

func (g *gauge) Acquire(_ context.Context, _ string, tokens int64) (func(int64), error) {
	g.reserved += tokens
	return func(used int64) { g.used += used }, nil
}

// TestEmbedder: requests for vectors keep to the limits, are sent again as others are, cost
// what the list says, and none is sent to a server that is known to fail.
func TestEmbedder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &llm.Error{Code: llm.CodeOverloaded}
		m, g := &vectorModels{fails: []error{busy, busy}}, &gauge{}
		choice := engine.Choice{Name: "v", Embeds: true, Cost: "priced", Price: func(u llm.Usage) int64 { return u.Input * 2 }, Limiter: g}
		ended := 0
		rt := &engine.Runtime{Models: m, OnRequest: func(llm.Code) { ended++ }, Choices: func(p llm.Provider) ([]engine.Choice, error) {
			choice.Provider = p
			return []engine.Choice{choice}, nil
		}}
		e, err := rt.Embedder(t.Context(), "acme", "v")
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
		if out, err := e.Embed(t.Context(), []string{"eight by", "tes"}); err != nil || out.Usage != (llm.Usage{MicroUSD: 6}) || g.used != 13 {
			t.Errorf("uncounted: %+v, %v, %d used", out, err, g.used)
		}

		// What is wrong is asked once; a server that fails five times, five times.
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
		if _, err := rt.Embedder(t.Context(), "acme", "v"); !errors.Is(err, llm.CodeInvalidRequest) {
			t.Error(err)
		}
	})
}
