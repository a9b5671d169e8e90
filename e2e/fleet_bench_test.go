//go:build e2e && linux

package e2e

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

var flagTries = flag.Int("bench-tries", 20, "how often BenchmarkFleet kills and freezes a node")

// BenchmarkFleet measures a fleet of real processes on one machine against its
// limits, and prints one table. It fails where a bar is missed:
//
//	go test -tags=e2e -run '^$' -bench Fleet -benchtime 1x -timeout 30m ./e2e
//
// The documentation of package internal/testkit/load describes the rows.
func BenchmarkFleet(b *testing.B) {
	t := &table{}
	for _, row := range []struct {
		name    string
		measure func(b *testing.B, t *table)
	}{
		{"continuation/kill", benchKill},
		{"continuation/restart", benchRestart},
		{"continuation/freeze", benchFreeze},
		{"scaling", benchScaling},
		{"fanout", benchFanOut},
		{"commits", benchCommits},
		{"dispatch", benchDispatch},
		{"pools", benchPools},
		{"waiting", benchWaiting},
	} {
		b.Run(row.name, func(b *testing.B) {
			for b.Loop() {
				row.measure(b, t)
			}
			b.ReportMetric(0, "ns/op") // prints nothing
		})
	}
	fmt.Print(t.text())
}

// table collects the figures with their limits.
type table struct {
	mu   sync.Mutex
	rows [][4]string
}

// row adds a figure with its bar, "" for none.
func (t *table) row(what, figure, bar string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	verdict := ""
	if bar != "" {
		verdict = map[bool]string{true: "ok", false: "MISSED"}[ok]
	}
	t.rows = append(t.rows, [4]string{what, figure, bar, verdict})
}

// bar adds a figure, and fails the benchmark if the bar is missed.
func (t *table) bar(b *testing.B, ok bool, what, figure, bar string) {
	b.Helper()
	t.row(what, figure, bar, ok)
	if !ok {
		b.Errorf("%s: %s, want %s (load of the machine: %s)", what, figure, bar, busyness())
	}
}

// note adds a remark to a figure.
func (t *table) note(what, text string) { t.row(what, text, "", true) }

func (t *table) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, r := range slices.Insert(slices.Clone(t.rows), 0, [4]string{"WHAT", "FIGURE", "BAR", ""}) {
		fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("%-22s %-38s %-10s %s", r[0], r[1], r[2], r[3]), " "))
	}
	return b.String()
}
