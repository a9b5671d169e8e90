package schedule

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// heldBar is for how long a driver may be held by one call.
const heldBar = 10 * time.Millisecond

// processor is the processor time of this thread: the load of the machine's neighbours does
// not count.
func processor(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	must.Do(tb, syscall.Getrusage(syscall.RUSAGE_THREAD, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPages measures how long one call for pages holds a driver at most, with 60,000
// waiting runs all of which have changed.
func BenchmarkPages(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, _ := waitingRuns(b, 60_000)
	all := allPages(b, s)
	var worst, sum time.Duration
	rounds := 0
	for b.Loop() {
		rounds++
		s.Pages.Unsaved(all)
		for more := true; more; {
			began := processor(b)
			var err error
			if _, more, err = s.Pages.Take(4); err != nil {
				b.Fatal(err)
			}
			d := processor(b) - began
			worst, sum = max(worst, d), sum+d
		}
	}
	b.ReportMetric(float64(worst.Microseconds())/1000, "ms-worst")
	b.ReportMetric(float64(sum.Milliseconds())/float64(rounds), "ms-all")
	if worst > heldBar {
		b.Errorf("a call for pages takes %v, want at most %v", worst, heldBar)
	}
}

// BenchmarkFold is for how long a driver is held at most by one commit, while
// 60,000 runs are submitted.
func BenchmarkFold(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var worst time.Duration
	at := 0
	for b.Loop() {
		h, s := newHistory(b, 1), New(&Options{Self: "relay"})
		for i := range 60_000 {
			e := h.submit(session.Key{Tenant: "t", ID: session.ID(fmt.Sprint("s", i))}, run.ID(fmt.Sprint("r", i)))
			began := processor(b)
			s.fold(b, e)
			if d := processor(b) - began; d > worst {
				worst, at = d, i
			}
		}
	}
	b.ReportMetric(float64(worst.Microseconds())/1000, "ms-worst")
	if worst > heldBar {
		b.Errorf("commit %d takes %v, want at most %v", at, worst, heldBar)
	}
}
