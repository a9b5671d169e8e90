package flowtest_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestAfterSurvivesCrashes: a crash at any commit leaves started runs that begin once each,
// after the runs that they name. One that names no run fails.
func TestAfterSurvivesCrashes(t *testing.T) {
	l := &ledger{t, filepath.Join(t.TempDir(), "ledger")}
	note := offers("note", func(ctx context.Context, s session.Session) (session.Session, error) {
		i, _ := flow.RunInfo(ctx)
		if _, err := flow.Do(ctx, "note", func(context.Context) (bool, error) { return true, l.add(string(i.Run)) }, tool.Idempotent); err != nil {
			return s, err
		}
		return s, flow.Sleep(ctx, time.Hour)
	})
	w := func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			for _, task := range []flow.Task{
				{ID: "a"}, {ID: "b", After: []run.ID{"a"}}, {ID: "c", AfterAny: []run.ID{"a"}, After: []run.ID{"b"}}, {ID: "d", After: []run.ID{"none"}},
			} {
				task.Workflow = "note"
				one, err := flow.Start(ctx, task)
				if err != nil {
					return s, err
				}
				if task.ID == "a" || task.ID == "b" {
					continue
				}
				end, err := one.Result(ctx, 0)
				if err != nil {
					return s, err
				}
				s = says(s, "%s %s", end.State, end.Code)
			}
			return s, nil
		})
	}
	o := &flowtest.Options{Workflows: []flow.Registration{note}}
	s := flowtest.Run(t, w(), session.New(session.UserText("go")), "testdata/none.txtar", o)
	rows(t, s, []string{"go", "succeeded ", "failed unknown_run"})
	if got := strings.Fields(l.text()); strings.Join(got, " ") != "a b c" {
		t.Errorf("the runs began as %q", got)
	}
	flowtest.CrashEverywhere(t, w, session.New(session.UserText("go")), "testdata/none.txtar", o)
}
