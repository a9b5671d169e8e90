package flowtest_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
	rows(t, s, want)
}

func TestGatherCrashEverywhere(t *testing.T) {
	t.Parallel()
	l := &ledger{t, filepath.Join(t.TempDir(), "ledger")}
	flowtest.CrashEverywhere(t, func() flow.Workflow { return gathers(l) }, session.New(session.UserText("go")), "testdata/none.txtar", gatherOptions())
}

// inTurn calls three functions of a Gather, each execution in another order: the bubble's
// clock goes on once the ones before have returned or wait.
func inTurn(ctx context.Context, execution int64, fn func(ctx context.Context, name string) error) error {
	var fns []func(context.Context) error
	for i := range int64(3) {
		fns = append(fns, func(ctx context.Context) error {
			time.Sleep(time.Duration((i+2*execution)%3) * time.Millisecond)
			return fn(ctx, string(rune('a'+i)))
		})
	}
	return flow.Gather(ctx, nil, fns...)
}

// TestGatherInAnyOrder: functions of a Gather that wait for one started run, or choose it
// in a Select, or request one version, make the same steps in each order.
func TestGatherInAnyOrder(t *testing.T) {
	did := func(ctx context.Context, name string) error {
		_, err := flow.Do(ctx, name, func(context.Context) (string, error) { return name, nil }, tool.Idempotent)
		return err
	}
	result := func(ctx context.Context, one flow.Started, name string) error {
		for range 2 { // the second one makes no step
			if end, err := one.Result(ctx, 0); err != nil || end.Output != "slept" {
				return fmt.Errorf("%s gets %q: %w", name, end.Output, err)
			}
		}
		return did(ctx, name)
	}
	for name, fn := range map[string]func(ctx context.Context, one flow.Started, name string) error{
		"result": result,
		"selected": func(ctx context.Context, one flow.Started, name string) error {
			ended, never := flow.OnResult(one), flow.OnTimer(100*time.Hour)
			if first, err := flow.Select(ctx, never, ended); err != nil || first != ended {
				return fmt.Errorf("%s selects %T: %w", name, first, err)
			}
			return result(ctx, one, name)
		},
		"one is late": func(ctx context.Context, one flow.Started, name string) error {
			if name == "b" {
				if err := flow.Sleep(ctx, 50*time.Hour); err != nil {
					return err
				}
			}
			return result(ctx, one, name)
		},
		"one is impatient": func(ctx context.Context, one flow.Started, name string) error {
			if name == "b" {
				if _, err := one.Result(ctx, time.Hour); !errors.Is(err, run.ErrExpired) {
					return fmt.Errorf("within an hour: %w", err)
				}
			}
			return result(ctx, one, name)
		},
		"version": func(ctx context.Context, _ flow.Started, name string) error {
			for range 2 { // the second one makes no step
				if v, err := flow.ChangeVersion(ctx, "twice", 0, 1); err != nil || v != 1 {
					return fmt.Errorf("%s has version %d: %w", name, v, err)
				}
			}
			if err := did(ctx, name); err != nil {
				return err
			}
			return flow.Sleep(ctx, time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var executions atomic.Int64
				w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
					n := executions.Add(1)
					one, err := flow.Start(ctx, flow.Task{Workflow: "nap"})
					if err != nil {
						return s, err
					}
					each := func(ctx context.Context, name string) error { return fn(ctx, one, name) }
					if err := inTurn(ctx, n, each); err != nil {
						return s, err
					}
					return s, each(ctx, "after")
				})
				flowtest.CrashEverywhere(t, func() flow.Workflow { return w }, session.New(session.UserText("go")), "testdata/none.txtar", gatherOptions())
			})
		})
	}
}

// TestGatherKnowsBefore: what the run has before a Gather, its functions have without a
// step, and what one of them has, the functions of its own Gather.
func TestGatherKnowsBefore(t *testing.T) {
	var paths []string
	flowtest.Run(t, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		paths = nil
		one, err := flow.Start(ctx, flow.Task{Workflow: "nap"})
		if err != nil {
			return s, err
		}
		knows := func(ctx context.Context, change string) error {
			if _, err := one.Result(ctx, 0); err != nil {
				return err
			}
			if _, err := flow.ChangeVersion(ctx, change, 0, 1); err != nil {
				return err
			}
			i, _ := flow.RunInfo(ctx)
			paths = append(paths, string(i.Path))
			return nil
		}
		if err := knows(ctx, "outer"); err != nil {
			return s, err
		}
		return s, flow.Gather(ctx, nil, func(ctx context.Context) error {
			if err := knows(ctx, "outer"); err != nil {
				return err
			}
			if err := knows(ctx, "inner"); err != nil {
				return err
			}
			return flow.Gather(ctx, nil, func(ctx context.Context) error {
				if err := knows(ctx, "outer"); err != nil {
					return err
				}
				return knows(ctx, "inner")
			})
		})
	}), session.New(session.UserText("go")), "testdata/none.txtar", gatherOptions())
	if got, want := fmt.Sprint(paths), "[3 3.0.0 3.0.1 3.0.1.0.0 3.0.1.0.0]"; got != want {
		t.Errorf("the next steps are %s, want %s", got, want)
	}
}
