package flowtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// escalation asks for an approval, somebody else after a day, and gives up after another.
func escalation(ctx context.Context, name string) (flow.Approval, error) {
	for _, whom := range []string{"ann", "bob"} {
		approved := flow.OnApproval(name, &flow.AwaitOptions{Title: "Deploy " + name + ", " + whom + "?"})
		day := flow.OnTimer(24 * time.Hour)
		first, err := flow.Select(ctx, day, approved)
		if err != nil || first == approved {
			return approved.Value, err
		}
	}
	return flow.Approval{Reason: "nobody answered"}, nil
}

// selector waits for the first of several things of each kind.
func selector(ctx context.Context, s session.Session) (session.Session, error) {
	for _, name := range []string{"shop", "blog"} {
		a, err := escalation(ctx, name)
		if err != nil {
			return s, err
		}
		s = says(s, "%s: %t %s%s on %s", name, a.Approved, a.By, a.Reason, flow.Now(ctx).Format(time.DateOnly))
	}
	nap, err := flow.Start(ctx, flow.Task{Workflow: "nap", Input: json.RawMessage(`2`)})
	if err != nil {
		return s, err
	}
	colour, end := flow.OnAnswer[string]("colour", &flow.AwaitOptions{Timeout: time.Hour}), flow.OnResult(nap)
	later := flow.OnTimer(5 * time.Hour)
	first, err := flow.Select(ctx, later, colour, end)
	s = says(s, "colour: %t %q %v", first == colour, colour.Value, errors.Is(err, run.ErrExpired))
	if !errors.Is(err, run.ErrExpired) {
		return s, err
	}
	if first, err = flow.Select(ctx, later, end); err != nil {
		return s, err
	}
	s = says(s, "end: %t %s", first == end, end.Value.Output)
	if first, err = flow.Select(ctx, later, end); err != nil { // it has come
		return s, err
	}
	s = says(s, "end: %t %s", first == end, end.Value.Output)
	message := flow.OnMessage(s, nil)
	if first, err = flow.Select(ctx, message, later); err != nil {
		return s, err
	}
	s = says(message.Value, "message: %t", first == message)
	_, err = flow.Select(ctx, flow.OnResult(flow.Started{Run: "stranger"}), later)
	if run.IsControl(err) {
		return s, err
	}
	s = says(s, "%v", err)
	_, err = flow.Select(ctx)
	return says(s, "%v", err), nil
}

// selects are the options of a test of selector.
func selects() *flowtest.Options {
	return &flowtest.Options{
		Workflows: []flow.Registration{offers("nap", func(ctx context.Context, s session.Session) (session.Session, error) {
			return says(s, "slept"), flow.Sleep(ctx, 2*time.Hour)
		})},
		Answer: func(q run.Question) (any, error) {
			switch {
			case strings.HasPrefix(q.Title, "Deploy shop, bob"):
				return flow.Approval{Approved: true, By: "bob"}, nil
			case q.Kind == run.WaitMessage:
				return "hello", nil
			}
			return nil, run.ErrExpired
		},
	}
}

// TestSelect: the first of several things ends a wait, and the others stay as they are.
func TestSelect(t *testing.T) {
	s := flowtest.Run(t, flow.Func(selector), session.New(session.UserText("go")), "testdata/none.txtar", selects())
	want := []string{
		"go", "shop: true bob on 2000-01-02", "blog: false nobody answered on 2000-01-04", `colour: true "" true`, "end: true slept", "end: true slept", "hello",
		"message: true", "did not start run stranger", "a Select of 0 cases",
	}
	rows(t, s, want)
}

// rows checks that each row of a session contains a text.
func rows(t *testing.T, s session.Session, want []string) {
	t.Helper()
	for i, c := range s.Chunks() {
		if i >= len(want) || !strings.Contains(c.Text(), want[i]) {
			t.Errorf("row %d is %q, want %q", i, c.Text(), want[min(i, len(want)-1)])
		}
	}
	if s.Len() != len(want) {
		t.Errorf("%d rows, want %d", s.Len(), len(want))
	}
}

func TestSelectCrashEverywhere(t *testing.T) {
	t.Parallel()
	flowtest.CrashEverywhere(t, func() flow.Workflow { return flow.Func(selector) }, session.New(session.UserText("go")), "testdata/none.txtar", selects())
}
