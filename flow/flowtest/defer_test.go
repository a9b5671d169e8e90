package flowtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// ledger is a file outside of the runs that the functions of a workflow append to.
type ledger struct {
	t    *testing.T
	path string
}

func (l *ledger) add(text string) error {
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, text)
	return errors.Join(err, f.Close())
}

func (l *ledger) text() string {
	all, err := os.ReadFile(l.path)
	if err != nil && !os.IsNotExist(err) {
		l.t.Fatal(err)
	}
	return string(all)
}

// begin checks the entries of the world before, each of which crashed elsewhere, and
// removes them.
func (l *ledger) begin() {
	for _, name := range []string{"undo charge", "undo reserve"} {
		if n := strings.Count(l.text(), name); n > 1 {
			l.t.Errorf("%s ran %d times:\n%s", name, n, l.text())
		}
	}
	if err := os.WriteFile(l.path, nil, 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// purchase reserves and charges, with compensations that must not happen twice.
func (l *ledger) purchase(after func(context.Context) error) flow.Workflow {
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		if i, _ := flow.RunInfo(ctx); !i.Replaying { // nothing is recorded yet
			l.begin()
		}
		for _, name := range []string{"reserve", "charge"} {
			if _, err := flow.Do(ctx, name, func(context.Context) (bool, error) { return true, l.add(name) }, tool.Idempotent); err != nil {
				return s, err
			}
			undo := func(context.Context) error { return l.add("undo " + name) }
			if err := flow.Defer(ctx, "undo "+name, undo, flow.DeferOptions{Effect: tool.NonIdempotent}); err != nil {
				return s, err
			}
		}
		return s, after(ctx)
	})
}

// TestDeferSurvivesCrashes: a crash at any commit of a run that fails or is cancelled while
// it waits, or of its cleanup run, leaves the same steps, and no compensation happens
// twice: one that is cut off waits for a decision.
func TestDeferSurvivesCrashes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		ends  run.State
		after func(context.Context) error
	}{
		{"fails", run.Failed, func(context.Context) error { return errors.New("out of stock") }},
		{"cancelled", run.Cancelled, func(ctx context.Context) error {
			_, err := flow.Await[string](ctx, "go on?", nil)
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &ledger{t, filepath.Join(t.TempDir(), "ledger")}
			o := &flowtest.Options{
				Ends: tc.ends, Resolve: run.Happened,
				Answer: func(run.Question) (any, error) { return nil, run.ErrCancelled },
			}
			s := session.New(session.UserText("a bicycle"))
			flowtest.Run(t, l.purchase(tc.after), s, "testdata/none.txtar", o)
			if want := "reserve\ncharge\nundo charge\nundo reserve\n"; l.text() != want {
				t.Errorf("the ledger has\n%swant\n%s", l.text(), want)
			}
			flowtest.CrashEverywhere(t, func() flow.Workflow { return l.purchase(tc.after) }, s, "testdata/none.txtar", o)
			l.begin()
		})
	}
}
