package bench

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/evidence/signature"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

const (
	signedRuns = 64
	// signingBar is the part of a one-turn run that its signature may take.
	signingBar = 0.02
)

// BenchmarkSigning compares the time of signing a result with that of the one-turn run that
// it signs, alternately. It fails if signing takes 2 % of the run.
func BenchmarkSigning(b *testing.B) {
	n, _ := start(b, model{})
	nc := dial(b, n.URL())
	load(b, nc, "one", newPrefix(), signedRuns, 1)
	key := must.Get(signature.Open(filepath.Join(b.TempDir(), signature.StoreFile)))(b)
	var parts []time.Duration
	var runs, signing []time.Duration
	for b.Loop() {
		runs = append(runs, median(load(b, nc, "one", newPrefix(), signedRuns, 1)))
		for i := range signedRuns {
			r := messages.Result{
				Run: run.ID(fmt.Sprint(i)), State: run.Succeeded, Session: "s", Version: 3, Output: "done", EndedMS: 1,
				Chain: &messages.Chain{Hash: "5be1c0d2a7f3a1b09c8e4d2f6a5b3c1d0e9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b", Seq: 4, Session: "s"},
			}
			began := time.Now()
			must.Get(key.Sign(r.Say("default")))(b)
			parts = append(parts, time.Since(began))
		}
		signing = append(signing, median(parts))
		parts = parts[:0]
	}
	part := float64(median(signing)) / float64(median(runs))
	b.ReportMetric(float64(median(signing).Nanoseconds())/1000, "µs/signature")
	b.ReportMetric(float64(median(runs).Nanoseconds())/1e6, "ms/run")
	b.ReportMetric(100*part, "%")
	if part > signingBar {
		b.Errorf("a signature takes %.1f %% of a one-turn run, more than %.0f %%", 100*part, 100*signingBar)
	}
}
