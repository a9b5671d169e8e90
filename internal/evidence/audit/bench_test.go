package audit_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// BenchmarkAudit audits sessions of 20 turns, each a model call and a call of a
// tool with 1 KB of text, with their lineage, results and aliases.
func BenchmarkAudit(b *testing.B) {
	const turns = 20
	text := string(slices.Repeat([]byte("0123456789abcdef"), 64))
	w := newWorld(b, nil)
	commits := 0
	for i := range 100 {
		id := fmt.Sprintf("s%d", i)
		run := "r" + id
		l := w.log(id, id)
		l.commit(l.open("n1"), l.ev("session.opened", `{"kind":"leaf"}`), l.chunk("user", text), l.submit(run, ""), l.claim(run, id, "n1"))
		for k := range turns {
			p := fmt.Sprint(k)
			l.commit(l.step(run, p, "model", model, l.chunk("assistant", text)))
			l.commit(l.step(run, p+".0", "tool", `,"call":"`+run+"/"+p+`.0","effect":"read_only","row":true`, l.chunk("tool_result", text)))
		}
		l.commit(in(run+"/end", l.end(run, "succeeded", fmt.Sprintf(`,"result":%s,"usage":{"calls":%d,"input":%d,"output":%d}`, l.link(), turns, 100*turns, 20*turns))))
		commits += 2*turns + 2
	}
	var all []audit.Message
	size := int64(0)
	for m, err := range w.messages() {
		must.Do(b, err)
		all = append(all, m)
		size += int64(len(m.Data))
	}
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		r, err := audit.Run(b.Context(), streamed(all), &audit.Options{Schemas: schemas})
		if err != nil || !r.OK() {
			b.Fatalf("error %v, violations\n%s", err, violations(r))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*commits), "ns/commit")
}

// TestMemory audits long sessions and checks that memory per commit is small.
func TestMemory(t *testing.T) {
	const sessions, commits = 100, 100
	w := newWorld(t, nil)
	logs := make([]*logbook, sessions)
	for i := range logs {
		id := fmt.Sprintf("s%d", i)
		logs[i] = w.log(id, id)
	}
	// The messages are generated while they are read, so that the heap holds only
	// the audit's data.
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r, err := audit.Run(t.Context(), func(yield func(audit.Message, error) bool) {
		for n := range commits {
			for _, l := range logs {
				run := "r" + l.id
				if n == 0 {
					l.commit(l.open("n1"), l.ev("session.opened", `{"kind":"leaf"}`), l.submit(run, ""), l.claim(run, l.id, "n1"))
				} else {
					l.commit(l.step(run, fmt.Sprint(n), "model", model, l.chunk("assistant", "some words")))
				}
				m := w.events[0]
				w.events, w.others = w.events[:0], w.others[:0]
				if !yield(m, nil) {
					return
				}
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
	}, &audit.Options{Schemas: schemas})
	if err != nil || !r.OK() || r.Commits != sessions*commits {
		t.Fatalf("error %v, %d commits, violations\n%s", err, r.Commits, violations(r))
	}
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc) //nolint:gosec // far below 2^63
	if per := grown / int64(r.Commits); per > 300 {           //nolint:gosec // likewise
		t.Errorf("%d bytes for each commit stay in memory", per)
	}
}
