package notes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/internal/notebook"
	"github.com/rathcluster/rath/memory"
)

// many are notes of sixty words with the frequencies of a language.
func many(n int, yield func(notebook.Note) error) error {
	rng := rand.New(rand.NewPCG(1, 2))
	words := rand.NewZipf(rng, 1.1, 4, 20_000)
	for i := range n {
		var text strings.Builder
		for range 60 {
			fmt.Fprintf(&text, "w%d ", words.Uint64())
		}
		if err := yield(notebook.Note{URI: fmt.Sprintf("memory://user/memories/notes/%06d", i), Text: text.String()}); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkRecall asks a memory of 50,000 notes, by the index alone and by the store that
// looks first whether there are newer ones, and opens it.
func BenchmarkRecall(b *testing.B) {
	const notes = 50_000
	o := streamstest.NodeOptions(natstest.Start(b, &natsserver.Options{Lazy: true}))
	o.Level = streams.Lazy
	s := layer.Dial(b, o)
	if err := s.Provision(b.Context()); err != nil {
		b.Fatal(err)
	}
	m := open(b, s, "notes")
	if _, err := m.Import(b.Context(), func(yield func(notebook.Note) error) error { return many(notes, yield) }); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		began := time.Now()
		m = open(b, s, "notes")
		if n, err := m.Len(b.Context()); err != nil || n != notes {
			b.Fatal(n, err)
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/open")
		for what, find := range map[string]func(context.Context, memory.Query) ([]memory.Hit, error){"index": m.m.Find, "store": m.Find} {
			began := time.Now()
			for i := range 200 {
				if _, err := find(b.Context(), memory.Query{Text: fmt.Sprintf("w%d w%d w%d w%d", 3+i, 40+i, 900+i, 5000+i)}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(time.Since(began).Microseconds())/200, "µs/"+what)
		}
	}
}
