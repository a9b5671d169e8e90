package lineage_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// busy returns a graph of one session with many runs one after the other, and of many
// sessions with one run each.
func busy(runs int) *lineage.Graph {
	g := lineage.NewGraph()
	commit := uint64(0)
	add := func(id session.ID, commit uint64, kind messages.Kind, n int) {
		g.Add(messages.Record{
			Schema: 1, Tenant: "acme", Root: id, Session: id, Commit: commit, Kind: kind, Hash: fmt.Sprint(commit), Time: int64(n), Run: run.ID(fmt.Sprint(id, "-", n)),
			Workflow: "fix", Step: "1", Attempt: 1, State: map[messages.Kind]string{messages.KindEnded: "succeeded"}[kind], Tool: "grep",
		})
	}
	for n := range runs {
		for _, kind := range []messages.Kind{messages.KindSubmitted, messages.KindClaimed, messages.KindModel, messages.KindTool, messages.KindEnded} {
			commit++
			add("chat", commit, kind, n)
			add(session.ID(fmt.Sprint("s", n)), commit%5+1, kind, n)
		}
	}
	return g
}

func BenchmarkSelect(b *testing.B) {
	for _, runs := range []int{100, 1000, 4000} {
		g := busy(runs)
		s := must.Get(lineage.ParseSelector("tool=grep and state=succeeded and not agent=critic"))(b)
		b.Run(fmt.Sprint(runs), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if n := len(g.Select("acme", s, time.UnixMilli(0))); n != 2*runs {
					b.Fatal(n)
				}
			}
		})
	}
}
