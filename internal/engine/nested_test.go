package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// callsOnce is a model that calls one tool in its first answer and then stops.
func callsOnce(name string) model {
	return func(r *llm.Request) *llm.Response {
		if r.Messages[len(r.Messages)-1].Role == llm.Tool {
			return &llm.Response{Text: "done", Finish: llm.FinishStop}
		}
		return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: "c", Name: name, Args: "{}"}}}
	}
}

// TestIDsInsideOfSteps: an id that the function of a step draws is fresh, and changes no
// id that the code between steps draws, on any execution. This holds for both contexts:
// the function's, and the run's own.
func TestIDsInsideOfSteps(t *testing.T) {
	var w world
	var inside, first, second []string
	var ctxOf context.Context // of the run
	ids := func(ctx context.Context) { inside = append(inside, flow.NewID(ctx), flow.NewID(ctxOf)) }
	agent := &flow.Agent{
		Name: "a",
		Tools: []tool.Tool{tool.Func("ids", "Takes ids.", func(ctx context.Context, _ struct{}) (int, error) {
			ids(ctx)
			return 1, nil
		}, &tool.FuncOptions{Effect: tool.ReadOnly})},
		Approve: func(tool.Spec, json.RawMessage) bool {
			inside = append(inside, flow.NewID(ctxOf))
			return false
		},
	}
	work := func(taken *[]string, between func()) flow.Func {
		return func(ctx context.Context, s session.Session) (session.Session, error) {
			ctxOf = ctx
			*taken = append(*taken, flow.NewID(ctx))
			_, err := flow.Do(ctx, "ids", func(inner context.Context) (int, error) { ids(inner); return 1, nil }, tool.ReadOnly)
			if err != nil {
				return s, err
			}
			*taken = append(*taken, flow.NewID(ctx))
			if s, err = agent.Forward(ctx, s.With(session.UserText("go"))); err != nil {
				return s, err
			}
			*taken = append(*taken, flow.NewID(ctx))
			between()
			_, err = flow.Do(ctx, (*taken)[len(*taken)-1], func(context.Context) (int, error) { return 2, nil }, tool.ReadOnly)
			return s, err
		}
	}
	ctx, stop := context.WithCancelCause(t.Context())
	ex := start(t, w.runtime(callsOnce("ids")), work(&first, func() { stop(run.ErrShutdown) }))
	forward(t, ctx, ex, run.Queued)
	forward(t, t.Context(), start(t, w.runtime(callsOnce("ids")), work(&second, func() {}), resume), run.Succeeded)
	if len(first) != 3 || !slices.Equal(first, second) {
		t.Errorf("between the steps the code took %q, and when it ran again %q", first, second)
	}
	all := append(slices.Clone(first), inside...)
	slices.Sort(all)
	if n := len(all); len(slices.Compact(all)) != n || slices.ContainsFunc(all, func(id string) bool { return len(id) != 32 }) {
		t.Errorf("ids %q, and inside of steps %q: want different ones of 32 digits", first, inside)
	}
}

// TestNowInsideOfSteps: the clock advances inside of steps.
func TestNowInsideOfSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		state, err := start(t, w.runtime(nil), func(ctx context.Context, s session.Session) (session.Session, error) {
			took, err := flow.Do(ctx, "wait", func(inner context.Context) ([]time.Duration, error) {
				began := []time.Time{flow.Now(inner), flow.Now(ctx)}
				time.Sleep(time.Hour)
				return []time.Duration{flow.Now(inner).Sub(began[0]), flow.Now(ctx).Sub(began[1])}, nil
			}, tool.ReadOnly)
			if err == nil && !slices.Equal(took, []time.Duration{time.Hour, time.Hour}) {
				err = fmt.Errorf("an hour took %v", took)
			}
			return s.With(session.UserText("x")), err
		}).Forward(t.Context())
		if state != run.Succeeded {
			t.Errorf("state %s, error %v", state, err)
		}
	})
}

// stepsInside are steps that the function of another one may try to make.
var stepsInside = map[string]func(context.Context, session.Session) error{
	"Do": func(ctx context.Context, _ session.Session) error {
		_, err := flow.Do(ctx, "inner", func(context.Context) (int, error) { return 0, nil }, tool.NonIdempotent)
		return err
	},
	"Agent": func(ctx context.Context, s session.Session) error {
		_, err := (&flow.Agent{Name: "inner"}).Forward(ctx, s.With(session.UserText("go")))
		return err
	},
	"FanOut": func(ctx context.Context, s session.Session) error {
		_, err := flow.FanOut(ctx, s, flow.Repeat(2, flow.EmptyWorkflow{}), nil)
		return err
	},
	"Fork":   func(ctx context.Context, s session.Session) error { _, err := flow.Fork(ctx, s); return err },
	"Reject": func(ctx context.Context, s session.Session) error { return flow.Reject(ctx, s, "no") },
	"Approve": func(ctx context.Context, _ session.Session) error {
		_, err := flow.Approve(ctx, "", nil)
		return err
	},
	"Call": func(ctx context.Context, s session.Session) error {
		_, _, err := flow.CallTool(ctx, s, words, wordsIn{})
		return err
	},
	"Recall": func(ctx context.Context, _ session.Session) error {
		_, err := flow.Recall(ctx, "m", "x", 1)
		return err
	},
}

// TestStepInStep: the function of a step cannot make another step, with any context. It
// fails there with an error, which fails the run and is not passed to a model.
func TestStepInStep(t *testing.T) {
	for name, try := range stepsInside {
		for _, captured := range []bool{false, true} {
			check := func(t *testing.T, err error, within string) {
				t.Helper()
				if !errors.Is(err, run.ErrNestedStep) || !strings.Contains(err.Error(), within) || strings.Contains(err.Error(), "goroutine") {
					t.Errorf("it fails with: %v", err)
				}
			}
			choose := func(outer, inner context.Context) context.Context {
				if captured {
					return outer
				}
				return inner
			}
			t.Run(fmt.Sprintf("%s in Do, captured %t", name, captured), func(t *testing.T) {
				var w world
				forward := func(ctx context.Context, s session.Session) (session.Session, error) {
					_, err := flow.Do(ctx, "outer", func(inner context.Context) (int, error) {
						err := try(choose(ctx, inner), s)
						check(t, err, `do "outer"`)
						if name == "Do" {
							check(t, err, `do "inner" cannot be made inside of do "outer" (step 0)`)
						}
						return 0, err
					}, tool.NonIdempotent)
					check(t, err, `do "outer"`)
					return s, err
				}
				rt := w.runtime(nil)
				state, err := start(t, rt, forward).Forward(t.Context())
				if state != run.Failed {
					t.Errorf("state %s", state)
				}
				check(t, err, `do "outer"`)
				h, err := rt.Runtime.Values.Recording(t.Context(), home, "r")
				if err != nil || h.Ended.Code != run.CodeNestedStep {
					t.Errorf("the log says %+v, %v", h.Ended, err)
				}
			})
			t.Run(fmt.Sprintf("%s in a tool, captured %t", name, captured), func(t *testing.T) {
				var w world
				asked := 0
				var outer context.Context
				agent := &flow.Agent{Name: "a", Tools: []tool.Tool{tool.Func("sub", "", func(ctx context.Context, _ struct{}) (int, error) {
					call, _ := tool.Current(ctx)
					err := try(choose(outer, ctx), call.Session)
					check(t, err, "tool")
					return 0, err
				}, &tool.FuncOptions{Effect: tool.ReadOnly})}}
				m := callsOnce("sub")
				rt := w.runtime(model(func(r *llm.Request) *llm.Response { asked++; return m(r) }))
				state, err := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
					outer = ctx
					return agent.Forward(ctx, s.With(session.UserText("go")))
				}).Forward(t.Context())
				if state != run.Failed || asked != 1 {
					t.Errorf("state %s after %d model calls", state, asked)
				}
				check(t, err, "tool")
			})
		}
	}
}

// TestStepInStepReplayed: the run fails the same way if it is cut off before its end, and
// calls beside the failed one are recorded once.
func TestStepInStepReplayed(t *testing.T) {
	var w world
	beside := 0
	agent := &flow.Agent{Name: "a", Tools: []tool.Tool{
		tool.Func("sub", "", func(ctx context.Context, _ struct{}) (int, error) {
			return 0, stepsInside["Do"](ctx, session.Session{})
		}, &tool.FuncOptions{Effect: tool.ReadOnly}),
		tool.Func("pay", "", func(context.Context, struct{}) (int, error) { beside++; return 1, nil }, nil),
	}}
	m := model(func(*llm.Request) *llm.Response {
		return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: "a", Name: "sub", Args: "{}"}, {ID: "b", Name: "pay", Args: "{}"}}}
	})
	ctx, stop := context.WithCancelCause(t.Context())
	work := func(after func()) flow.Func {
		return func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := agent.Forward(ctx, s.With(session.UserText("go")))
			after()
			if !errors.Is(err, run.ErrNestedStep) {
				return s, fmt.Errorf("the agent ended with: %w", err)
			}
			_, err = flow.Do(ctx, "on", func(context.Context) (int, error) { return 1, nil }, tool.NonIdempotent)
			return s, err
		}
	}
	forward(t, ctx, start(t, w.runtime(m), work(func() { stop(run.ErrShutdown) })), run.Queued)
	again := start(t, w.runtime(m), work(func() {}), resume)
	if state, err := again.Forward(t.Context()); state == run.NeedsReview || beside != 1 {
		t.Errorf("state %s, error %v, %d calls beside it", state, err, beside)
	}
}

// TestConcurrentSteps: steps in goroutines have no order that replay could reproduce.
func TestConcurrentSteps(t *testing.T) {
	var w world
	m := model(func(*llm.Request) *llm.Response { panic("not asked") })
	rt := w.runtime(m)
	asked, answer := make(chan struct{}), make(chan struct{})
	rt.Runtime.Models = model(func(*llm.Request) *llm.Response {
		close(asked)
		<-answer
		return &llm.Response{Text: "done", Finish: llm.FinishStop}
	})
	state, err := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
		done := make(chan error)
		go func() {
			<-asked
			_, err := flow.Do(ctx, "beside", func(context.Context) (int, error) { return 0, nil }, tool.NonIdempotent)
			close(answer)
			done <- err
		}()
		s, err := (&flow.Agent{Name: "a"}).Forward(ctx, s.With(session.UserText("go")))
		if err := <-done; !errors.Is(err, engine.ErrConcurrentStep) || errors.Is(err, run.ErrNestedStep) || !strings.Contains(err.Error(), "FanOut") {
			t.Errorf("a step beside another one: %v", err)
		}
		return s, err
	}).Forward(t.Context())
	if state != run.Succeeded {
		t.Errorf("state %s, error %v", state, err)
	}
}

// TestRunInsideOfStep: the function of a step may read its position, and may run a
// workflow of its own, which is another run.
func TestRunInsideOfStep(t *testing.T) {
	var w world
	rt := w.runtime(nil)
	state, err := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
		where, err := flow.Do(ctx, "where", func(ctx context.Context) (string, error) {
			i, ok := flow.RunInfo(ctx)
			if !ok {
				return "", errors.New("not inside a run")
			}
			_, err := (&inprocess.Runtime{}).Run(ctx, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				_, err := flow.Do(ctx, "step", func(context.Context) (int, error) { return 1, nil }, tool.NonIdempotent)
				return s, err
			}), session.New(session.UserText("x")))
			return fmt.Sprint(i.Run, " ", i.Path), err
		}, tool.NonIdempotent)
		if err == nil && where != "r 0" {
			err = fmt.Errorf("the function was at %q", where)
		}
		return s.With(session.UserText(where)), err
	}).Forward(t.Context())
	if state != run.Succeeded {
		t.Errorf("state %s, error %v", state, err)
	}
}

// TestErrorsOfOtherRuns: an error that an author's function returns about another run,
// which was cancelled or waits, is that function's outcome. It neither cancels nor
// suspends this run.
func TestErrorsOfOtherRuns(t *testing.T) {
	for _, of := range []error{run.ErrCancelled, run.ErrSuspended, run.ErrReview, run.ErrSuperseded} {
		other := fmt.Errorf("the other run: %w", of)
		fails := tool.Func("fails", "Fails.", func(context.Context, struct{}) (int, error) { return 0, other }, nil)
		does := func(ctx context.Context) error {
			_, err := flow.Do(ctx, "other", func(context.Context) (int, error) { return 0, other }, tool.NonIdempotent)
			return err
		}
		refuses := func(context.Context, tool.Spec, json.RawMessage) (json.RawMessage, error) { return nil, other }
		withholds := func(context.Context, tool.Spec, json.RawMessage, tool.Result) (tool.Result, error) {
			return tool.Result{}, other
		}
		for name, work := range map[string]func(ctx context.Context, s session.Session) (session.Session, string, error){
			"do": func(ctx context.Context, s session.Session) (session.Session, string, error) {
				return s, does(ctx).Error(), nil
			},
			"tool": func(ctx context.Context, s session.Session) (session.Session, string, error) {
				s, r, err := flow.CallTool(ctx, s, fails, struct{}{})
				return s, fmt.Sprintf("%s", r.Body), err
			},
			"before": func(ctx context.Context, s session.Session) (session.Session, string, error) {
				s, err := (&flow.Agent{Name: "a", Tools: []tool.Tool{fails}, Hooks: flow.Hooks{BeforeTool: refuses}}).Forward(ctx, s)
				last, _ := s.Last(session.ToolResult)
				return s, last.Text(), err
			},
			"after": func(ctx context.Context, s session.Session) (session.Session, string, error) {
				s, err := (&flow.Agent{Name: "a", Tools: []tool.Tool{fails}, Hooks: flow.Hooks{AfterTool: withholds}}).Forward(ctx, s)
				last, _ := s.Last(session.ToolResult)
				return s, last.Text(), err
			},
		} {
			t.Run(fmt.Sprint(name, " ", of), func(t *testing.T) {
				var w world
				said := ""
				forward(t, t.Context(), start(t, w.runtime(callsOnce("fails")), func(ctx context.Context, s session.Session) (_ session.Session, err error) {
					s, said, err = work(ctx, s.With(session.UserText("go")))
					return s, err
				}), run.Succeeded)
				if !strings.Contains(said, other.Error()) {
					t.Errorf("it said %q, want %q in it", said, other)
				}
			})
		}
		t.Run(fmt.Sprint("returned ", of), func(t *testing.T) {
			var w world
			ex := start(t, w.runtime(nil), func(ctx context.Context, s session.Session) (session.Session, error) { return s, does(ctx) })
			forward(t, t.Context(), ex, run.Failed)
		})
		if errors.Is(of, run.ErrReview) {
			continue // with it Forward itself asks for a person
		}
		t.Run(fmt.Sprint("made by Forward ", of), func(t *testing.T) {
			var w world
			ex := start(t, w.runtime(nil), func(_ context.Context, s session.Session) (session.Session, error) { return s, other })
			if err := forward(t, t.Context(), ex, run.Failed); !strings.Contains(err.Error(), other.Error()) {
				t.Errorf("it failed with %v", err)
			}
		})
	}
}

// TestReturnsWhyABranchWasCancelled: a run that returns the error of its cancelled branch
// was not cancelled itself.
func TestReturnsWhyABranchWasCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		asks := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Approve(ctx, "go on?", nil)
			return s, err
		})
		work := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			j, err := flow.FanOut(ctx, s, flow.Repeat(1, asks), nil)
			if err != nil {
				return s, err
			}
			return s, j.Outcomes[0].Err
		})
		_, _, state, err := w.run1(t, nil, work, func(rt *inprocess.Runtime, _ *journal.Task) {
			rt.Answer = func(ctx context.Context, q run.Question) (any, error) {
				return nil, rt.Signal(ctx, journal.Signal{To: q.Session, Run: q.Run, Cancel: &journal.CancelRequested{Reason: "enough"}})
			}
		})
		if state != run.Failed || err == nil || !strings.Contains(err.Error(), "enough") {
			t.Errorf("the run is %s: %v", state, err)
		}
	})
}
