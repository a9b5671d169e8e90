package selection

import (
	"context"
	"fmt"
	"testing"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestInterrupted interrupts what is done about many runs. It ends with the run that is
// under way, and the runs after it are not told as failed.
func TestInterrupted(t *testing.T) {
	const many, until = 1000, 3
	ctx, interrupt := context.WithCancel(t.Context())
	runs, rows := make([]messages.RunInfo, many), make([]Outcome, many)
	for i := range runs {
		runs[i].Run = run.ID(fmt.Sprint("r", i))
		rows[i].Run = runs[i].Run
	}
	tried := 0
	n, failed, err := carryOut(ctx, runs, rows, Verb{Do: func(ctx context.Context, r *messages.RunInfo) (string, error) {
		if tried++; tried > until {
			interrupt()
			return "", ctx.Err()
		}
		return "", nil
	}}, true)
	if n != until || failed != 0 || err != nil || tried != until+1 {
		t.Errorf("%d of %d runs were come to, %d failed, %d were tried, %v; want %d, none failed, %d tried", n, many, failed, tried, err, until, until+1)
	}
	for i, r := range rows {
		if r.Done != (i < until) || r.Error != "" {
			t.Errorf("run %s: done %v, error %q", r.Run, r.Done, r.Error)
		}
	}
}
