package flowtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// offers registers a workflow.
func offers(name string, w flow.Func) flow.Registration {
	return flow.Registration{Name: name, New: func() flow.Workflow { return w }}
}

// says returns s with a last text, which is the output of a run.
func says(s session.Session, format string, args ...any) session.Session {
	return s.With(session.AssistantText(fmt.Sprintf(format, args...)))
}

// TestStart: a run starts others, and gets the outcome of each: success, failure, a sleep
// of days, and the tasks that are rejected.
func TestStart(t *testing.T) {
	o := &flowtest.Options{Workflows: []flow.Registration{
		offers("pay", func(ctx context.Context, s session.Session) (session.Session, error) {
			i, _ := flow.RunInfo(ctx)
			if string(i.Input) == `"never"` {
				return s, errors.New("no money")
			}
			if err := flow.Sleep(ctx, 72*time.Hour); err != nil {
				return s, err
			}
			return says(s, "paid %s at %s", i.Input, flow.Now(ctx).Format(time.DateOnly)), nil
		}),
	}}
	w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		good, err := flow.Start(ctx, flow.Task{Workflow: "pay", Input: json.RawMessage(`7`)})
		if err != nil {
			return s, err
		}
		if _, err := good.Result(ctx, time.Hour); !errors.Is(err, run.ErrExpired) {
			return s, fmt.Errorf("within an hour: %w", err)
		}
		later := flow.Task{Workflow: "pay", Input: json.RawMessage(`8`), ForkOf: s.Committed().Ref(), NotBefore: flow.Now(ctx).Add(24 * time.Hour)}
		for _, t := range []flow.Task{{Workflow: "pay", ID: "mine", Input: json.RawMessage(`"never"`)}, {Workflow: "nothing"}, {Workflow: "pay", ID: "test"}, {Workflow: "pay", ID: "mine"}, {Workflow: "pay", Session: "home"}, later} {
			one, err := flow.Start(ctx, t)
			if run.IsControl(err) {
				return s, err
			}
			if err != nil {
				s = says(s, "start: %v", err)
				continue
			}
			end, err := one.Result(ctx, 0)
			if err != nil {
				return s, err
			}
			s = says(s, "%s %q %q %v", end.State, end.Output, end.Code, end.Err)
		}
		for range 2 { // the second one makes no step
			end, err := good.Result(ctx, 0)
			if err != nil {
				return s, err
			}
			s = says(s, "%s %q", end.State, end.Output)
		}
		_, err = flow.Started{Run: "stranger"}.Result(ctx, 0)
		return says(s, "%v", err), nil
	})
	s := flowtest.Run(t, w, session.New(session.UserText("an order")), "testdata/none.txtar", o)
	want := []string{
		"an order", `failed "" "error" run mine has failed: no money`, `failed "" "unknown_workflow" run `, "id test: ", "id mine: ", "set ForkOf instead",
		`succeeded "paid 8 at 2000-01-05"`, `succeeded "paid 7 at 2000-01-04"`, `succeeded "paid 7 at 2000-01-04"`, "did not start run stranger",
	}
	rows(t, s, want)
}

// TestStartSurvivesCrashes: a crash at any commit of the starter or of the runs that it
// starts leaves the same runs, each of which happened once.
func TestStartSurvivesCrashes(t *testing.T) {
	l := &ledger{t, filepath.Join(t.TempDir(), "ledger")}
	pay := offers("pay", func(ctx context.Context, s session.Session) (session.Session, error) {
		i, _ := flow.RunInfo(ctx)
		if _, err := flow.Do(ctx, "pay", func(context.Context) (bool, error) { return true, l.add("pay " + string(i.Input)) }, tool.NonIdempotent); err != nil {
			return s, err
		}
		return says(s, "paid %s", i.Input), flow.Sleep(ctx, time.Hour)
	})
	w := func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			var started []flow.Started
			for n := range 2 {
				one, err := flow.Start(ctx, flow.Task{Workflow: "pay", Input: json.RawMessage(fmt.Sprint(n)), Budget: run.Budget{Steps: 9}})
				if err != nil {
					return s, err
				}
				started = append(started, one)
			}
			for _, one := range started[:1] {
				end, err := one.Result(ctx, 0)
				if err != nil {
					return s, err
				}
				s = says(s, "%s", end.Output)
			}
			return s, nil
		})
	}
	o := &flowtest.Options{Resolve: run.Happened, Workflows: []flow.Registration{pay}}
	flowtest.CrashEverywhere(t, w, session.New(session.UserText("an order")), "testdata/none.txtar", o)
	for _, line := range []string{"pay 0", "pay 1"} {
		if !strings.Contains(l.text(), line) {
			t.Errorf("no run did %q", line)
		}
	}
}

// TestStartInAChain: runs that start each other end with an error that names them.
func TestStartInAChain(t *testing.T) {
	var text string
	next := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		i, _ := flow.RunInfo(ctx)
		one, err := flow.Start(ctx, flow.Task{Workflow: "next", ID: run.ID("r" + fmt.Sprint(len(i.Input))), Input: json.RawMessage("1" + string(i.Input))})
		if errors.Is(err, run.ErrTooDeep) {
			text = err.Error()
			return s, err
		}
		if err != nil {
			return s, err
		}
		_, err = one.Result(ctx, 0)
		return s, err
	})
	o := &flowtest.Options{Workflows: []flow.Registration{offers("next", next)}, Task: messages.Task{Input: json.RawMessage("1")}}
	flowtest.Run(t, next, session.New(session.UserText("go")), "testdata/none.txtar", o)
	if want := "18 runs start each other (test -> r1 -> r2 -> r3 -> "; !strings.Contains(text, want) || !strings.Contains(text, "-> r16)") {
		t.Errorf("the error is %q, want %q", text, want)
	}
}

// TestStartInALoop: a loop starts a thousand runs, which all end, and comes to a bound.
func TestStartInALoop(t *testing.T) {
	var ran atomic.Int64
	o := &flowtest.Options{Workflows: []flow.Registration{offers("one", func(_ context.Context, s session.Session) (session.Session, error) {
		ran.Add(1)
		return says(s, "done"), nil
	})}}
	w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		for n := 0; ; n++ {
			if _, err := flow.Start(ctx, flow.Task{Workflow: "one"}); err != nil {
				if n != flow.MaxStarts || !errors.Is(err, run.ErrNotSupported) {
					return s, fmt.Errorf("start %d: %w", n, err)
				}
				return s, nil
			}
		}
	})
	flowtest.Run(t, w, session.New(session.UserText("go")), "testdata/none.txtar", o)
	if n := ran.Load(); n != flow.MaxStarts {
		t.Errorf("%d runs ran, want %d", n, flow.MaxStarts)
	}
}
