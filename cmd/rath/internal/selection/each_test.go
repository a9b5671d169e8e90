package selection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestInterrupted interrupts the action on many runs, one after the other or several at
// once. It ends after those in progress, and the runs after them do not count as
// failed.
func TestInterrupted(t *testing.T) {
	for _, several := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const many, until = 1000, 3
			atOnce := 1
			if several {
				atOnce = runsAtOnce
			}
			ctx, interrupt := context.WithCancel(t.Context())
			runs, rows := make([]messages.RunInfo, many), make([]Outcome, many)
			for i := range runs {
				runs[i].Run = run.ID(fmt.Sprint("r", i))
				rows[i].Run = runs[i].Run
			}
			var tried atomic.Int32
			d, err := carryOut(ctx, runs, rows, Verb{Several: several, Do: func(ctx context.Context, r *messages.RunInfo) (string, error) {
				switch n := tried.Add(1); {
				case n > until && atOnce == 1, n == until+runsAtOnce: // all that may be are in progress
					interrupt()
				case n > until:
					<-ctx.Done()
				default:
					return "", nil
				}
				return "", ctx.Err()
			}}, true, func(int) {})
			if want := (carriedOut{begun: until + atOnce, cut: atOnce}); d != want || err != nil || int(tried.Load()) != until+atOnce {
				t.Errorf("%+v, want %+v; %d were tried: %v", d, want, tried.Load(), err)
			}
			done := 0
			for i, r := range rows {
				if r.Done {
					done++
				}
				if r.Error != "" || r.Done && i >= d.begun {
					t.Errorf("run %s: done %v, error %q", r.Run, r.Done, r.Error)
				}
			}
			if done != until {
				t.Errorf("%d are done, want %d", done, until)
			}
		})
	}
}

// TestSeveralAtOnce acts on many runs for a second each, with the largest concurrency.
// Failures go into the rows of their runs, and the others continue.
func TestSeveralAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 10 * runsAtOnce
		runs, rows := make([]messages.RunInfo, many), make([]Outcome, many)
		for i := range runs {
			runs[i].Run = run.ID(fmt.Sprint("r", i))
		}
		rows[5].Skipped = "has ended"
		var told []int
		began := time.Now()
		d, err := carryOut(t.Context(), runs, rows, Verb{Several: true, Do: func(_ context.Context, r *messages.RunInfo) (string, error) {
			time.Sleep(time.Second)
			if r.Run == "r7" {
				return "", errors.New("busy")
			}
			return string(r.Run), nil
		}}, true, func(done int) { told = append(told, done) })
		if want := (carriedOut{begun: many, failed: 1}); d != want || err != nil {
			t.Errorf("%+v, want %+v: %v", d, want, err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %v, want 10 s", took)
		}
		if len(told) != many-1 || !slices.IsSorted(told) {
			t.Errorf("progress: %v", told)
		}
		for i, r := range rows {
			switch {
			case i == 5 && !r.Done, i == 7 && r.Error == "busy":
			case !r.Done || r.Note != fmt.Sprint("r", i):
				t.Errorf("run %d: %+v", i, r)
			}
		}
	})
}
