package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// heeds waits for the end of its context.
func heeds(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "", context.Cause(ctx)
}

// TestCancelReaches cancels a run over NATS in each of its places. The run has ended within
// a second, and so has the work of its step.
func TestCancelReaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		var heard time.Time
		var n *node
		hears := func(ctx context.Context) (string, error) {
			defer func() { heard = time.Now() }()
			return heeds(ctx)
		}
		works := func(name string, do func(context.Context, session.Session) error) flow.Registration {
			return flow.Registration{Name: name, Description: name, Revision: "1", New: func() flow.Workflow {
				return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) { return s, do(ctx, s) })
			}}
		}
		own := tool.Func("own", "waits", func(ctx context.Context, _ struct{}) (string, error) { return hears(ctx) }, &tool.FuncOptions{Effect: tool.NonIdempotent})
		places := []struct {
			name  string
			hears bool // the work has to hear of it
			do    func(context.Context, session.Session) error
		}{
			{"sleep", false, func(ctx context.Context, _ session.Session) error { return flow.Sleep(ctx, time.Hour) }},
			{"await", false, func(ctx context.Context, _ session.Session) error {
				_, err := flow.Await[string](ctx, "go on?", nil)
				return err
			}},
			{"own_code", true, func(ctx context.Context, _ session.Session) error {
				_, err := hears(ctx)
				return err
			}},
			{"do", true, func(ctx context.Context, _ session.Session) error {
				_, err := flow.Do(ctx, "wait", hears, tool.NonIdempotent)
				return err
			}},
			{"pause", false, func(ctx context.Context, _ session.Session) error {
				_, err := flow.Do(ctx, "fail", func(context.Context) (string, error) { return "", context.DeadlineExceeded }, tool.ReadOnly, tool.Retry{Times: 9, First: 4 * time.Second})
				return err
			}},
			{"tool", true, func(ctx context.Context, s session.Session) error {
				_, _, err := flow.CallTool(ctx, s, own, struct{}{})
				return err
			}},
			{"program", true, func(ctx context.Context, s session.Session) error {
				_, _, err := flow.CallTool(ctx, s, n.conn.ToolOf(session.DefaultTenant, messages.Tool{Name: "slow", TimeoutMS: messages.MaxToolTimeoutMS}), struct{}{})
				return err
			}},
			{"branch", true, func(ctx context.Context, s session.Session) error {
				_, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "one", Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
					_, err := flow.Do(ctx, "wait", hears, tool.ReadOnly)
					return s, err
				})}}, nil)
				return err
			}},
		}
		var more []flow.Registration
		for _, p := range places {
			more = append(more, works(p.name, p.do))
		}
		n = startNodeWith(t, srv, "node-1", &spec{more: more})
		program := must.Get(n.conn.Requests.ServeTool(t.Context(), session.DefaultTenant, "slow", func(ctx context.Context, _ messages.ToolCall) messages.ToolAnswer {
			_, err := hears(ctx)
			return messages.ToolAnswer{Body: must.Get(json.Marshal(fmt.Sprint(err)))(t), IsError: true}
		}))(t)
		c, _ := visitor(t, srv)
		for _, p := range places {
			heard = time.Time{}
			id := must.Get(c.Submit(t.Context(), p.name, messages.Task{ID: run.ID("run-" + p.name)}))(t)
			time.Sleep(2 * time.Second)
			began := time.Now()
			must.Do(t, c.Runs.Cancel(t.Context(), id, messages.Control{Reason: "enough"}))
			r := must.Get(c.Wait(t.Context(), id))(t)
			took := time.Since(began)
			t.Logf("%s: %s after %v", p.name, r.State, took)
			if r.State != run.Cancelled || took > time.Second {
				t.Errorf("%s: %s after %v: %+v", p.name, r.State, took, r.Error)
			}
			if p.hears {
				time.Sleep(time.Second)
				synctest.Wait()
				if late := heard.Sub(began); heard.IsZero() || late > time.Second {
					t.Errorf("%s: its work heard of it after %v", p.name, late)
				}
			}
		}
		must.Report(t, program.Stop())
		n.stop()
	})
}

// TestCancelForced cancels a run whose code ignores its context. With force the run has ended
// a second later, without it after the stated time; its slot is free although the code goes
// on. The node counts the code until it returns.
func TestCancelForced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		stuck := make(chan struct{})
		n := startNodeWith(t, srv, "node-1", &spec{slots: 1, more: []flow.Registration{{Name: "stuck", Description: "ignores its context", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(_ context.Context, s session.Session) (session.Session, error) { <-stuck; return s, nil })
		}}}})
		c, _ := visitor(t, srv)
		cancel := func(id run.ID, d messages.Control, most time.Duration) {
			t.Helper()
			began := time.Now()
			must.Do(t, c.Runs.Cancel(t.Context(), id, d))
			r := must.Get(c.Wait(t.Context(), id))(t)
			if took := time.Since(began); r.State != run.Cancelled || took > most || took < most-time.Second {
				t.Errorf("%s is %s after %v", id, r.State, took)
			}
		}
		for i, tc := range []struct {
			force bool
			most  time.Duration
		}{{true, engine.ForcedAfter}, {false, engine.GiveUpAfter}} {
			id := must.Get(c.Submit(t.Context(), "stuck", messages.Task{}))(t)
			time.Sleep(2 * time.Second)
			cancel(id, messages.Control{Reason: "enough", Force: tc.force}, tc.most+100*time.Millisecond)
			if r := must.Get(c.Do(t.Context(), "agent", messages.Task{Input: text("hello")}, nil))(t); r.State != run.Succeeded {
				t.Errorf("the slot was not free: %s", r.State)
			}
			if got := n.rt.Leaked(); got != i+1 {
				t.Errorf("%d leaked, want %d", got, i+1)
			}
		}
		close(stuck)
		synctest.Wait()
		if got := n.rt.Leaked(); got != 0 {
			t.Errorf("%d leaked, and all have returned", got)
		}
		n.stop()
	})
}

// TestToolHearsOfCancel cancels a run during a call of a tool of another program, which has
// the credentials of a program with tools. The program hears of it at once, with the reason.
// Its answer comes ten seconds later: the log of the run has it as evidence, after the end.
func TestToolHearsOfCancel(t *testing.T) {
	for _, tc := range []struct {
		name  string
		task  messages.Task
		tool  messages.Tool
		want  run.State
		after time.Duration // of the start
		why   string
	}{
		{"cancel", messages.Task{}, messages.Tool{Effect: "non_idempotent"}, run.Cancelled, 2 * time.Second, "enough"},
		{"cancel, idempotent", messages.Task{}, messages.Tool{Effect: "idempotent"}, run.Cancelled, 2 * time.Second, "enough"},
		{"deadline", messages.Task{Budget: messages.Budget{TimeMS: 20_000}}, messages.Tool{Effect: "read_only"}, run.TimedOut, 20 * time.Second, "deadline"},
		{"time of the call", messages.Task{}, messages.Tool{Effect: "read_only", TimeoutMS: 5_000}, run.Succeeded, 5 * time.Second, "deadline exceeded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				var n *node
				tc.tool.Name = "pay"
				if tc.tool.TimeoutMS == 0 {
					tc.tool.TimeoutMS = messages.MaxToolTimeoutMS
				}
				n = startNodeWith(t, srv, "node-1", &spec{more: []flow.Registration{{Name: "pays", Description: "pays", Revision: "1", New: func() flow.Workflow {
					return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
						s, _, err := flow.CallTool(ctx, s.With(session.UserText("pay")), n.conn.ToolOf(session.DefaultTenant, tc.tool), struct{}{})
						if err == nil {
							err = flow.Sleep(ctx, time.Minute)
						}
						return s, err
					})
				}}}})
				user, password := srv.Tool()
				program := must.Get(api.Connect(t.Context(), &streams.Options{Options: conn.Options{Dialer: srv.Dial, User: user, Password: password}, Client: true}))(t)
				began := time.Now()
				var heard time.Duration
				var why string
				s := must.Get(program.Requests.ServeTool(t.Context(), session.DefaultTenant, "pay", func(ctx context.Context, _ messages.ToolCall) messages.ToolAnswer {
					_, err := heeds(ctx)
					heard, why = time.Since(began), fmt.Sprint(err)
					time.Sleep(10 * time.Second)
					return messages.ToolAnswer{Body: json.RawMessage(`"paid"`)}
				}))(t)
				c, _ := visitor(t, srv)
				id := must.Get(c.Submit(t.Context(), "pays", tc.task))(t)
				if tc.want == run.Cancelled {
					time.Sleep(tc.after - time.Since(began))
					must.Do(t, c.Runs.Cancel(t.Context(), id, messages.Control{Reason: "enough"}))
				}
				if r := must.Get(c.Wait(t.Context(), id))(t); r.State != tc.want {
					t.Errorf("the run is %s", r.State)
				}
				time.Sleep(20 * time.Second)
				synctest.Wait()
				if heard < tc.after || heard > tc.after+time.Second || !strings.Contains(why, tc.why) {
					t.Errorf("the program heard %q after %v, want after %v", why, heard, tc.after)
				}
				var late []string
				for _, m := range n.told(t) {
					for _, r := range m.records {
						if r.Kind == messages.KindLate {
							late = append(late, r.Summary)
						}
					}
				}
				if len(late) != 1 || !strings.Contains(late[0], "pay answered attempt 1 too late") {
					t.Errorf("late: %q", late)
				}
				must.Report(t, s.Stop())
				must.Report(t, program.Conn.Close())
				n.stop()
			})
		})
	}
}
