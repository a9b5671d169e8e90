package actors_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/session"
)

// BenchmarkStep measures one durable step through a session actor, over a log in
// memory, with journal.NewStore as the baseline.
func BenchmarkStep(b *testing.B) {
	b.Run("direct", func(b *testing.B) { benchSteps(b, journal.NewStore(&commitlog.Memory{}, nil), 1) })
	b.Run("actor", func(b *testing.B) { benchSteps(b, quietSystem(b).Store(), 1) })
	b.Run("direct-64", func(b *testing.B) { benchSteps(b, journal.NewStore(&commitlog.Memory{}, nil), 64) })
	b.Run("actor-64", func(b *testing.B) { benchSteps(b, quietSystem(b).Store(), 64) })
}

func quietSystem(b *testing.B) *actors.System {
	return start(b, &commitlog.Memory{}, actors.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
}

// benchSteps records b.N steps in total, spread over sessions. A run ends after 100
// steps, so that the cost of a step does not grow with b.N.
func benchSteps(b *testing.B, s journal.Store, sessions int) {
	b.ReportAllocs()
	var wg sync.WaitGroup
	for i := range sessions {
		wg.Go(func() {
			n := b.N / sessions
			if i < b.N%sessions {
				n++
			}
			for done := 0; done < n; {
				k := key(fmt.Sprintf("s%d-%d", i, done))
				g := claim(b, s, task(string("r"+k.ID), k))
				for j := 0; j < 100 && done < n; j++ {
					if _, err := s.Commit(context.Background(), step(g, k, fmt.Sprint(j), session.Version(j), "chunk")); err != nil {
						b.Error(err)
						return
					}
					done++
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkActivate measures the first request to a session that is not in memory.
func BenchmarkActivate(b *testing.B) {
	sys := quietSystem(b)
	s := sys.Store()
	b.ReportAllocs()
	for i := range b.N {
		k := key(fmt.Sprintf("s%d", i))
		claim(b, s, task("r", k))
	}
}
