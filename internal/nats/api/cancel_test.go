package api_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
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
			{"program", false, func(ctx context.Context, s session.Session) error {
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
			<-ctx.Done() // the program ends
			return messages.ToolAnswer{Body: json.RawMessage(`"late"`)}
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
				if late := heard.Sub(began); heard.IsZero() || late > time.Second {
					t.Errorf("%s: its work heard of it after %v", p.name, late)
				}
			}
		}
		n.stop()
		must.Report(t, program.Stop())
	})
}
