package notes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
)

// topics makes the vector of a text by its topic, not by its words.
type topics struct {
	asked atomic.Int64
	fails error
}

func (e *topics) Embed(_ context.Context, texts []string) (*llm.Embeddings, error) {
	e.asked.Add(1)
	if e.fails != nil {
		return nil, e.fails
	}
	out := &llm.Embeddings{}
	for _, text := range texts {
		v := []float32{0.01, 0.01, 0.01}
		for i, words := range []string{"colour theme dark night", "lunch soup bread", "deploy rollback release"} {
			for word := range strings.FieldsSeq(strings.ToLower(text)) {
				if strings.Contains(words, word) {
					v[i]++
				}
			}
		}
		out.Vectors = append(out.Vectors, v)
	}
	return out, nil
}

func with(t *testing.T, s *streams.Streams, o *Options) *Store {
	t.Helper()
	m, err := Open(s, "acme", "notes", o)
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, m.Close()) })
	return m
}

func uris(hits []memory.Hit) (all []string) {
	for _, h := range hits {
		all = append(all, strings.TrimPrefix(h.URI, "memory://user/"))
	}
	return all
}

// TestVectors: a note gets its vector once, where it is written, and all stores find by it
// notes that share no word with the query. The vector of a query is made once, also for
// further pages. Vectors of another model are not compared, and without the model the
// search falls back to words and reports that.
func TestVectors(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, nil)
	first, second := layer.Dial(t, streamstest.NodeOptions(srv)), layer.Dial(t, streamstest.NodeOptions(srv))
	must.Do(t, first.Provision(t.Context()))
	var log bytes.Buffer
	e := &topics{}
	o := &Options{Embedder: e, Model: "topics", Logger: slog.New(slog.NewTextHandler(&log, nil))}
	a, b := with(t, first, o), with(t, second, o)
	for uri, text := range map[string]string{"theme": "dark theme", "soup": "soup", "release": "rollback"} {
		must.Do(t, a.Write(t.Context(), "memory://user/"+uri, text, memory.Origin{}))
	}
	wantAsked := func(want int64) {
		t.Helper()
		if got := e.asked.Swap(0); got != want {
			t.Errorf("%d vectors were asked for, want %d", got, want)
		}
	}
	wantAsked(3)
	must.Do(t, b.Write(t.Context(), "memory://user/soup", "soup", memory.Origin{}))
	must.Do(t, b.Write(t.Context(), "memory://user/soup", "soup", memory.Origin{Session: "s1"}))
	wantAsked(0) // the text is the same
	for limit := range 2 {
		hits, err := b.Find(t.Context(), memory.Query{Text: "which colour at night?", Limit: 1 + limit})
		if err != nil || uris(hits)[0] != "theme" {
			t.Errorf("found %v: %v", uris(hits), err)
		}
	}
	wantAsked(1)

	// Without the model.
	e.fails = errors.New("no server")
	hits, err := b.Find(t.Context(), memory.Query{Text: "colour of soup"})
	if !errors.Is(err, memory.ErrWordsOnly) || !strings.Contains(err.Error(), "model topics: no server") || fmt.Sprint(uris(hits)) != "[soup]" {
		t.Errorf("without the model %v: %v", uris(hits), err)
	}
	must.Do(t, b.Write(t.Context(), "memory://user/bread", "bread", memory.Origin{}))
	if !strings.Contains(log.String(), "found by its words alone") || !strings.Contains(log.String(), "no server") {
		t.Errorf("of a note without a vector the log has %q", log.String())
	}
	must.Do(t, b.Write(t.Context(), "memory://user/theme", "dark theme", memory.Origin{})) // keeps its own
	wantAsked(2)
	e.fails = nil
	must.Do(t, a.Write(t.Context(), "memory://user/bread", "bread", memory.Origin{})) // now it gets one
	must.Do(t, a.Write(t.Context(), "memory://user/blank", " \n", memory.Origin{}))
	wantAsked(1)
	hits, err = b.Find(t.Context(), memory.Query{Text: "lunch"})
	if got := fmt.Sprint(uris(hits)); err != nil || !strings.HasPrefix(got, "[bread soup") {
		t.Errorf("found %v: %v", got, err)
	}

	// Without any model, and with another one.
	plain := open(t, second, "notes")
	if hits, err := plain.Find(t.Context(), memory.Query{Text: "lunch"}); err != nil || len(hits) > 0 {
		t.Errorf("without a model %v were found: %v", uris(hits), err)
	}
	e.asked.Store(0)
	other := with(t, second, &Options{Embedder: e, Model: "newer"})
	if hits, err := other.Find(t.Context(), memory.Query{Text: "lunch"}); err != nil || len(hits) > 0 {
		t.Errorf("by another model %v were found: %v", uris(hits), err)
	}
	wantAsked(0) // there is nothing to compare
	must.Do(t, other.Write(t.Context(), "memory://user/soup", "soup", memory.Origin{Session: "s1"}))
	if hits, err := other.Find(t.Context(), memory.Query{Text: "lunch"}); err != nil || fmt.Sprint(uris(hits)) != "[soup]" {
		t.Errorf("by another model %v were found: %v", uris(hits), err)
	}
}

type wide struct{}

func (wide) Embed(context.Context, []string) (*llm.Embeddings, error) {
	return &llm.Embeddings{Vectors: [][]float32{make([]float32, notebook.MaxDimensions+1)}}, nil
}

// TestLargeVectors: beyond the limits of dimensions and of bytes a note has no vector.
func TestLargeVectors(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e := embedding{Embedder: &topics{}, model: "topics", log: slog.New(slog.NewTextHandler(&log, nil))}
	n, err := notebook.NewNote("memory://user/a", "soup", memory.Origin{})
	must.Do(t, err)
	if v := e.ofNote(t.Context(), n, notebook.MaxVectors-8); v.Model != "" || !strings.Contains(log.String(), "rath memory forget") {
		t.Errorf("a memory that is full of vectors takes %v: %q", v, log.String())
	}
	e.Embedder = wide{}
	if v, err := e.of(t.Context(), "soup"); err == nil || !strings.Contains(err.Error(), "4097 dimensions") {
		t.Errorf("a vector of 4,097 dimensions is %v: %v", v, err)
	}
}
