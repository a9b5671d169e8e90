package journal

import (
	"fmt"
	"testing"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// BenchmarkActivation loads a session of 10,000 chunks: by folding its whole
// log, from a snapshot on a node that has none of its pages, and from one on a
// node that has them, each with a tail of ten commits.
func BenchmarkActivation(b *testing.B) {
	log := &counting{Memory: &commitlog.Memory{}}
	w := long(b, log, longKey, 10_000)
	load := func(b *testing.B, log commitlog.Log, values *Values, folded int) {
		b.Helper()
		got, err := LoadStateMachine(b.Context(), log, values, longKey, "n")
		if err != nil || got.SinceSnapshot() != folded {
			b.Fatalf("folded %d commits, want %d: %v", got.SinceSnapshot(), folded, err)
		}
	}
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			load(b, plainLog{log}, NewValues(plainLog{log}), int(w.At().Seq))
		}
	})
	if err := save(b.Context(), log, w); err != nil {
		b.Fatal(err)
	}
	for i := range 10 {
		e := session.ChunkEvent(session.UserText(fmt.Sprint("more ", i)))
		if _, err := w.Commit(Batch{Session: longKey, Run: "r", Attempt: 1, Path: run.Path(fmt.Sprint("x", i)), Base: w.Session().Ref().Version, Events: []session.Event{e}}, fromMillis(1_800_000_000_000)); err != nil {
			b.Fatal(err)
		}
		c, _ := w.Take()
		at, err := log.Append(b.Context(), w.At(), c)
		if err != nil {
			b.Fatal(err)
		}
		w.Committed(at)
	}
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			load(b, log, NewValues(log), 10)
		}
	})
	b.Run("snapshot and pages", func(b *testing.B) {
		values := NewValues(log)
		for b.Loop() {
			load(b, log, values, 10)
		}
	})
}

// BenchmarkSnapshot takes a snapshot of a session after each turn.
func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			log := &counting{Memory: &commitlog.Memory{}}
			w := long(b, log, longKey, n)
			if err := save(b.Context(), log, w); err != nil {
				b.Fatal(err)
			}
			log.bytes = 0
			b.ReportAllocs()
			for b.Loop() {
				if err := save(b.Context(), log, w); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(log.bytes)/float64(b.N), "bytes/op")
		})
	}
}

// BenchmarkStep is what the writer adds to a step: deciding, staging, encoding
// and appending to memory.
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			log := &commitlog.Memory{}
			w := long(b, log, longKey, n)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				p := run.Path(fmt.Sprint("x", i))
				events := []session.Event{
					session.ChunkEvent(session.AssistantText("the quick brown fox")),
					event(KindStepCompleted, StepCompleted{Attempt: 1, Input: "0123456789abcdef", Kind: StepModel, Name: "writer", Path: p, Row: true, Run: "r"}),
				}
				if _, err := w.Commit(Batch{Session: longKey, Run: "r", Attempt: 1, Path: p, Base: w.Session().Ref().Version, Events: events}, fromMillis(1_800_000_000_000)); err != nil {
					b.Fatal(err)
				}
				c, _ := w.Take()
				at, err := log.Append(b.Context(), w.At(), c)
				if err != nil {
					b.Fatal(err)
				}
				w.Committed(at)
			}
		})
	}
}
