package notes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
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
// looks first whether there are newer ones, in less than maxRecall, and opens it.
func BenchmarkRecall(b *testing.B) {
	const (
		notes     = 50_000
		maxRecall = 20 * time.Millisecond
	)
	o := streamstest.NodeOptions(natstest.Start(b, &natsserver.Options{Lazy: true}))
	o.Level = streams.Lazy
	s := layer.Dial(b, o)
	must.Do(b, s.Provision(b.Context()))
	m := open(b, s, "notes")
	must.Get(m.Import(b.Context(), func(yield func(notebook.Note) error) error { return many(notes, yield) }))(b)
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
				must.Get(find(b.Context(), memory.Query{Text: fmt.Sprintf("w%d w%d w%d w%d", 3+i, 40+i, 900+i, 5000+i)}))(b)
			}
			each := time.Since(began) / 200
			b.ReportMetric(float64(each.Microseconds()), "µs/"+what)
			if each >= maxRecall {
				b.Errorf("a recall by the %s takes %v, want less than %v", what, each, maxRecall)
			}
		}
	}
}

// BenchmarkRecallOfThree asks a memory of 50,000 notes whose stream is on three servers and
// the same notes of this process alone, in turns. At the first decile, which has the fewest
// waits for a processor, it takes at most maxRecall as long.
func BenchmarkRecallOfThree(b *testing.B) {
	const (
		notes     = 50_000
		maxRecall = 1.5
	)
	cluster := natstest.StartCluster(b, 3)
	s := layer.Dial(b, &streams.Options{
		Options: conn.Options{URL: cluster.URLs(0)}, Replicas: 3, Partitions: 2,
		Probe: func(context.Context) ([]streams.SyncState, error) {
			return []streams.SyncState{{Server: "all", Always: true}}, nil
		},
	})
	must.Do(b, s.Provision(b.Context()))
	fleet := open(b, s, "notes")
	here := notebook.New(nil)
	must.Get(fleet.Import(b.Context(), func(yield func(notebook.Note) error) error {
		return many(notes, func(n notebook.Note) error {
			here.Apply(notebook.Change{Puts: []notebook.Note{n}})
			return yield(n)
		})
	}))(b)
	var took [2][]time.Duration
	for i := 0; b.Loop(); i++ {
		q := memory.Query{Text: fmt.Sprintf("w%d w%d w%d w%d", 3+i%40, 40+i%400, 900+i%900, 5000+i%5000)}
		for of, m := range []interface {
			Find(ctx context.Context, q memory.Query) ([]memory.Hit, error)
		}{here, fleet} {
			began := time.Now()
			must.Get(m.Find(b.Context(), q))(b)
			took[of] = append(took[of], time.Since(began))
		}
	}
	decile := func(all []time.Duration) float64 {
		slices.Sort(all)
		return float64(all[len(all)/10].Microseconds())
	}
	ratio := decile(took[1]) / decile(took[0])
	b.ReportMetric(decile(took[0]), "µs/local")
	b.ReportMetric(ratio, "xlocal")
	if len(took[0]) > 100 && ratio > maxRecall {
		b.Errorf("a recall over three servers takes %.2f times as long as a local one, at most %.1f are allowed", ratio, maxRecall)
	}
}
