package journal

import (
	"fmt"
	"testing"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
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
	must.Do(b, save(b.Context(), log, w))
	for i := range 10 {
		e := session.ChunkEvent(session.UserText(fmt.Sprint("more ", i)))
		must.Get(w.Commit(Batch{Session: longKey, Run: "r", Attempt: 1, Path: run.Path(fmt.Sprint("x", i)), Base: w.Session().Ref().Version, Events: []session.Event{e}}, fromMillis(1_800_000_000_000)))(b)
		c, _ := w.Take()
		at := must.Get(log.Append(b.Context(), w.At(), c))(b)
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
			must.Do(b, save(b.Context(), log, w))
			log.bytes = 0
			b.ReportAllocs()
			for b.Loop() {
				must.Do(b, save(b.Context(), log, w))
			}
			b.ReportMetric(float64(log.bytes)/float64(b.N), "bytes/op")
		})
	}
}

// BenchmarkStep measures the writer's part of a step: deciding, staging, encoding and
// appending to memory.
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
				must.Get(w.Commit(Batch{Session: longKey, Run: "r", Attempt: 1, Path: p, Base: w.Session().Ref().Version, Events: events}, fromMillis(1_800_000_000_000)))(b)
				c, _ := w.Take()
				at := must.Get(log.Append(b.Context(), w.At(), c))(b)
				w.Committed(at)
			}
		})
	}
}
