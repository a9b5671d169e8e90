package flowtest_test

import (
	"context"
	"errors"
	"fmt"
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

// gathers calls functions that do, wait, start, choose and call functions in turn.
func gathers(l *ledger) flow.Func {
	did := func(ctx context.Context, name string, e tool.Effect) (string, error) {
		return flow.Do(ctx, name, func(context.Context) (string, error) {
			return name, l.add(name)
		}, e)
	}
	return func(ctx context.Context, s session.Session) (session.Session, error) {
		var said [6]string
		err := flow.Gather(ctx, &flow.GatherOptions{Limit: 3},
			func(ctx context.Context) (err error) {
				if said[0], err = did(ctx, "pay", tool.Idempotent); err != nil {
					return err
				}
				id := flow.NewID(ctx)
				err = flow.Sleep(ctx, 36*time.Hour)
				said[0] += " " + flow.Now(ctx).Format(time.DateTime) + fmt.Sprint(len(id))
				return err
			},
			func(ctx context.Context) (err error) {
				said[1], err = flow.Await[string](ctx, "colour", nil)
				return err
			},
			func(ctx context.Context) error {
				a, err := escalation(ctx, "shop")
				said[2] = a.By
				return err
			},
			func(ctx context.Context) error {
				one, err := flow.Start(ctx, flow.Task{Workflow: "nap"})
				if err != nil {
					return err
				}
				end, err := one.Result(ctx, 0)
				said[3] = end.Output
				return err
			},
			func(ctx context.Context) error {
				return flow.Gather(ctx, nil,
					func(ctx context.Context) (err error) {
						said[4], err = did(ctx, "inner", tool.Idempotent)
						return err
					},
					func(ctx context.Context) error { return flow.Sleep(ctx, time.Hour) },
					func(ctx context.Context) (err error) {
						mine, err := flow.Detach(ctx, s)
						if err != nil {
							return err
						}
						_, r, err := flow.CallTool(ctx, mine, echo, map[string]string{"text": "hi"})
						said[5] = fmt.Sprint(r.Body)
						return err
					},
				)
			},
		)
		if err != nil {
			return s, err
		}
		s = says(s, "%s", strings.Join(said[:], ", "))
		// A failure ends the others, and is in order.
		err = flow.Gather(ctx, nil,
			func(ctx context.Context) error {
				for {
					if err := flow.Sleep(ctx, 48*time.Hour); err != nil {
						return err
					}
				}
			},
			func(ctx context.Context) error {
				if err := flow.Sleep(ctx, time.Hour); err != nil {
					return err
				}
				return errors.New("broken")
			},
		)
		if run.IsControl(err) {
			return s, err
		}
		s = says(s, "%v at %s", err, flow.Now(ctx).Format(time.DateTime))
		if _, err := did(ctx, "last", tool.Idempotent); err != nil {
			return s, err
		}
		for _, not := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := flow.Listen(ctx, s, nil); return err },
			func(ctx context.Context) error {
				_, err := flow.FanOut(ctx, s.Committed(), flow.Repeat(2, flow.EmptyWorkflow{}), nil)
				return err
			},
			func(ctx context.Context) error {
				return flow.Defer(ctx, "undo", func(context.Context) error { return nil }, flow.DeferOptions{})
			},
		} {
			err := flow.Gather(ctx, nil, not)
			if run.IsControl(err) {
				return s, err
			}
			s = says(s, "%t", errors.Is(err, run.ErrNotSupported))
		}
		return s, nil
	}
}

var echo = tool.Func("echo", "Repeats.", func(_ context.Context, in struct {
	Text string `json:"text"`
},
) (string, error) {
	return in.Text, nil
}, &tool.FuncOptions{Effect: tool.Idempotent})

func gatherOptions() *flowtest.Options {
	return &flowtest.Options{
		Workflows: []flow.Registration{offers("nap", func(ctx context.Context, s session.Session) (session.Session, error) {
			return says(s, "slept"), flow.Sleep(ctx, 2*time.Hour)
		})},
		Answer: func(q run.Question) (any, error) {
			switch {
			case q.Name == "colour":
				return "blue", nil
			case strings.Contains(q.Title, "bob"):
				return flow.Approval{Approved: true, By: "bob"}, nil
			}
			return nil, run.ErrExpired
		},
	}
}

// TestGather: functions of a Gather make their steps concurrently, and the run waits for
// the first of their waits; the time of a wait does not move with the others.
func TestGather(t *testing.T) {
	l := &ledger{t, filepath.Join(t.TempDir(), "ledger")}
	s := flowtest.Run(t, gathers(l), session.New(session.UserText("go")), "testdata/none.txtar", gatherOptions())
	want := []string{"go", "pay 2000-01-02 12:00:0032, blue, bob, slept, inner, hi", "broken at 2000-01-02 13:00:00", "true", "true", "true"}
	for i, c := range s.Chunks() {
		if i >= len(want) || !strings.Contains(c.Text(), want[i]) {
			t.Errorf("row %d is %q, want %q", i, c.Text(), want[min(i, len(want)-1)])
		}
	}
	if s.Len() != len(want) {
		t.Errorf("%d rows, want %d", s.Len(), len(want))
	}
}

func TestGatherCrashEverywhere(t *testing.T) {
	t.Parallel()
	l := &ledger{t, filepath.Join(t.TempDir(), "ledger")}
	flowtest.CrashEverywhere(t, func() flow.Workflow { return gathers(l) }, session.New(session.UserText("go")), "testdata/none.txtar", gatherOptions())
}
