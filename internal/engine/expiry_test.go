package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestNoTimeLeft: a timeout that is over when the step begins, for example because it was
// counted from a deadline, is not the default.
func TestNoTimeLeft(t *testing.T) {
	late := &flow.AwaitOptions{Timeout: -time.Second}
	for name, waits := range map[string]flow.Func{
		"approval": func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Approve(ctx, "Publish?", late)
			return s, err
		},
		"response": func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Await[int](ctx, "number", late)
			return s, err
		},
		"message": func(ctx context.Context, s session.Session) (session.Session, error) {
			return flow.Listen(ctx, s, late)
		},
		"branches": func(ctx context.Context, s session.Session) (session.Session, error) {
			j, err := flow.FanOut(ctx, s, flow.Repeat(2, flow.EmptyWorkflow{}), &flow.FanOutOptions{Timeout: -time.Second})
			if err == nil && len(j.Succeeded()) == 0 {
				err = run.ErrExpired
			}
			return s, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var w world
				_, _, state, err := w.run1(t, nil, waits, nil)
				if state != run.Failed || !errors.Is(err, run.ErrExpired) || time.Since(began) > time.Second {
					t.Errorf("it is %s after %v: %v", state, time.Since(began), err)
				}
			})
		})
	}
}

// TestDefaultExpiry: a wait that only an event from outside can end lasts as long as a
// review unless the author sets a timeout; a timer has its own time.
func TestDefaultExpiry(t *testing.T) {
	pay := tool.Func("pay", "Pays.", func(context.Context, struct{}) (int, error) { return 1, nil }, nil)
	agent := &flow.Agent{Name: "a", Tools: []tool.Tool{pay}, Approve: func(tool.Spec, json.RawMessage) bool { return true }}
	for _, tt := range []struct {
		name  string
		after time.Duration
		waits flow.Func
		ends  error
	}{
		{"approval", journal.DefaultExpiry, func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Approve(ctx, "Publish?", nil)
			return s, err
		}, run.ErrExpired},
		{"response", journal.DefaultExpiry, func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Await[int](ctx, "number", nil)
			return s, err
		}, run.ErrExpired},
		{"message", journal.DefaultExpiry, func(ctx context.Context, s session.Session) (session.Session, error) {
			return flow.Listen(ctx, s, nil)
		}, run.ErrExpired},
		{"call", journal.DefaultExpiry, func(ctx context.Context, s session.Session) (session.Session, error) {
			return agent.Forward(ctx, s.With(session.UserText("go")))
		}, nil},
		{"longer", 2 * journal.DefaultExpiry, func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Approve(ctx, "Publish?", &flow.AwaitOptions{Timeout: 2 * journal.DefaultExpiry})
			return s, err
		}, run.ErrExpired},
		{"timer", time.Hour, func(ctx context.Context, s session.Session) (session.Session, error) {
			return s, flow.Sleep(ctx, time.Hour)
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := client(func(_ context.Context, r *llm.Request) (*llm.Response, error) {
					if r.Messages[len(r.Messages)-1].Role == llm.Tool {
						return &llm.Response{Text: "told", Finish: llm.FinishStop}, nil
					}
					return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: "1", Name: "pay", Args: `{}`}}}, nil
				})
				var w world
				rt := w.runtime(calls)
				forward(t, t.Context(), start(t, rt, tt.waits), run.Waiting)
				tick := journal.Signal{To: home, Tick: true}
				time.Sleep(tt.after - time.Second)
				if err := rt.Runtime.Store.Apply(t.Context(), tick); !errors.Is(err, run.ErrState) {
					t.Errorf("before its time: %v", err)
				}
				time.Sleep(time.Second)
				check(t, rt.Runtime.Store.Apply(t.Context(), tick))
				want := map[bool]run.State{true: run.Succeeded, false: run.Failed}[tt.ends == nil]
				if state, err := start(t, w.runtime(calls), tt.waits, resume).Forward(t.Context()); state != want || !errors.Is(err, tt.ends) {
					t.Errorf("it ends %s: %v", state, err)
				}
			})
		})
	}
}
