package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// client is a model that may take its time.
type client func(ctx context.Context, r *llm.Request) (*llm.Response, error)

func (c client) Complete(ctx context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	return c(ctx, r)
}

func (c client) Client(context.Context, llm.Provider) (llm.Client, error) { return c, nil }

// talk sends a signal to the home run as `rath session message` and `rath answer` do.
func talk(t *testing.T, rt *inprocess.Runtime, v journal.SignalReceived) error {
	t.Helper()
	return rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Received: &v})
}

// parrot repeats the user's last message, after a while.
func parrot(d time.Duration, asked *[]string) client {
	return func(ctx context.Context, r *llm.Request) (*llm.Response, error) {
		last := r.Messages[len(r.Messages)-1].Text
		*asked = append(*asked, last)
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return &llm.Response{Text: "re: " + last, Finish: llm.FinishStop}, nil
	}
}

func TestMessageWhileRunning(t *testing.T) {
	for _, interrupt := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var w world
			var asked []string
			steps := map[string]int{}
			answer := parrot(time.Minute, &asked)
			rt := w.runtime(client(func(ctx context.Context, r *llm.Request) (*llm.Response, error) {
				steps[r.StepKey]++
				return answer(ctx, r)
			}))
			agent := &flow.Agent{Name: "a"}
			ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
				return agent.Forward(ctx, s.With(session.UserText("one")))
			})
			go func() {
				time.Sleep(time.Second)
				v := journal.SignalReceived{Kind: journal.Message, Text: "two", Interrupt: interrupt}
				if err := rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Received: &v}); err != nil {
					t.Error(err)
				}
			}()
			began := time.Now()
			state, err := ex.Forward(t.Context())
			if state != run.Succeeded {
				t.Fatalf("state %s: %v", state, err)
			}
			want, took := []string{"one", "re: one", "two", "re: two"}, 2*time.Minute
			if interrupt {
				want, took = []string{"one", "two", "re: two"}, time.Minute+time.Second
			}
			if got := texts(ex.Result()); !slices.Equal(got, want) {
				t.Errorf("interrupt %v: the session says %q, want %q", interrupt, got, want)
			}
			if d := time.Since(began); d != took {
				t.Errorf("interrupt %v: it took %s, want %s", interrupt, d, took)
			}
			if !slices.Equal(asked, []string{"one", "two"}) {
				t.Errorf("the model was asked %q", asked)
			}
			// No two requests have the same key.
			if len(steps) != 2 {
				t.Errorf("interrupt %v: the requests were for the steps %v", interrupt, steps)
			}
		})
	}
}

// TestMessageReplayed: a user's message has the same place on every execution, although
// it is not sent again.
func TestMessageReplayed(t *testing.T) {
	var w world
	var asked []string
	rt := w.runtime(parrot(0, &asked))
	agent := &flow.Agent{Name: "a"}
	stop := true
	work := func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := agent.Forward(ctx, s.With(session.UserText("one")))
		if err != nil {
			return s, err
		}
		if stop {
			stop = false
			v := journal.SignalReceived{Kind: journal.Message, Text: "two"}
			if err := rt.Runtime.Store.Apply(ctx, journal.Signal{To: home, Run: "r", Received: &v}); err != nil {
				t.Error(err)
			}
			return s, run.ErrShutdown
		}
		return agent.Forward(ctx, s)
	}
	forward(t, t.Context(), start(t, rt, work), run.Queued)
	// The agent, replayed up to its first answer, finds the message and answers
	// it, in this attempt and, cut off after it, in the next one.
	cut := true
	again := func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := work(ctx, s)
		if err == nil && cut {
			cut = false
			return s, run.ErrShutdown
		}
		return s, err
	}
	forward(t, t.Context(), start(t, rt, again, resume), run.Queued)
	ex := start(t, rt, again, resume)
	state, err := ex.Forward(t.Context())
	if state != run.Succeeded {
		t.Fatalf("state %s: %v", state, err)
	}
	if got := strings.Join(texts(ex.Result()), "|"); got != "one|re: one|two|re: two|re: re: two" {
		t.Errorf("the session says %q", got)
	}
}

// TestInterruptUnheard: an interrupting message does not interrupt a call that cannot
// take it, because the call is not an agent's on the run's own session. The message stays
// in the inbox.
func TestInterruptUnheard(t *testing.T) {
	agent := &flow.Agent{Name: "a"}
	for name, work := range map[string]flow.Func{
		"fork": func(ctx context.Context, s session.Session) (session.Session, error) {
			branch, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			if branch, err = agent.Forward(ctx, branch.With(session.UserText("one"))); err != nil {
				return s, err
			}
			return s, flow.Reject(ctx, branch, "it only tried")
		},
		"select": func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := (&flow.Selector{Name: "s"}).Select(ctx, s, say("x"))
			return s, err
		},
		"compress": func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := (&flow.Compressor{Name: "c"}).Forward(ctx, s)
			return s, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w world
				var asked []string
				answer := parrot(time.Minute, &asked)
				rt := w.runtime(client(func(ctx context.Context, r *llm.Request) (*llm.Response, error) {
					if len(asked) > 9 { // it would go on for ever
						return &llm.Response{Text: "-1", Finish: llm.FinishStop}, nil
					}
					return answer(ctx, r)
				}))
				ex := start(t, rt, work)
				time.AfterFunc(time.Second, func() {
					if err := talk(t, rt, journal.SignalReceived{Kind: journal.Message, Text: "two", Interrupt: true}); err != nil {
						t.Error(err)
					}
				})
				forward(t, t.Context(), ex, run.Succeeded)
				if len(asked) != 1 {
					t.Errorf("the model was asked %d times: %q", len(asked), asked)
				}
				if got := texts(ex.Result()); !slices.Equal(got, []string{"two"}) {
					t.Errorf("the session says %q", got)
				}
			})
		})
	}
}

// TestMessageBehindAgent: a user's message that comes once the run is past an agent,
// according to the log, is not for that agent, even when the code runs again.
func TestMessageBehindAgent(t *testing.T) {
	agent := &flow.Agent{Name: "a"}
	for _, tt := range []struct {
		name   string
		wait   func(ctx context.Context, s session.Session) (session.Session, error)
		answer journal.Signal
	}{
		{"approval", func(ctx context.Context, s session.Session) (session.Session, error) {
			a, err := flow.Approve(ctx, "go on?", nil)
			if err == nil && !a.Approved {
				err = errors.New("rejected")
			}
			return s, err
		}, journal.Signal{Received: &journal.SignalReceived{Kind: journal.Approve, Path: "1"}}},
		{"sleep", func(ctx context.Context, s session.Session) (session.Session, error) {
			return s, flow.Sleep(ctx, time.Hour)
		}, journal.Signal{Tick: true}},
		{"listen", func(ctx context.Context, s session.Session) (session.Session, error) {
			return flow.Listen(ctx, s, nil)
		}, journal.Signal{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w world
				var asked []string
				work := func(ctx context.Context, s session.Session) (session.Session, error) {
					s, err := agent.Forward(ctx, s.With(session.UserText("one")))
					if err != nil {
						return s, err
					}
					return tt.wait(ctx, s)
				}
				rt := w.runtime(parrot(0, &asked))
				forward(t, t.Context(), start(t, rt, work), run.Waiting)
				check(t, talk(t, rt, journal.SignalReceived{Kind: journal.Message, Text: "two"}))
				time.Sleep(time.Hour)
				if sig := tt.answer; sig != (journal.Signal{}) {
					if sig.To = home; !sig.Tick {
						sig.Run = "r"
					}
					check(t, rt.Runtime.Store.Apply(t.Context(), sig))
				}
				ex := start(t, w.runtime(parrot(0, &asked)), work, resume)
				forward(t, t.Context(), ex, run.Succeeded)
				if got := texts(ex.Result()); !slices.Equal(got, []string{"one", "re: one", "two"}) {
					t.Errorf("the session says %q", got)
				}
			})
		})
	}
}

// TestMessageBehindCall: a call that the code made after an agent is not repeated because
// of a later message, and a call that was cut off is found.
func TestMessageBehindCall(t *testing.T) {
	agent := &flow.Agent{Name: "a"}
	for name, cut := range map[string]bool{"recorded": false, "cut off": true} {
		t.Run(name, func(t *testing.T) {
			var w world
			var asked []string
			ctx, stop := context.WithCancelCause(t.Context())
			ran := 0
			pay := tool.Func("pay", "Pays.", func(ctx context.Context, _ struct{}) (int, error) {
				if ran++; cut && ran == 1 {
					stop(run.ErrShutdown)
					<-ctx.Done()
					return 0, ctx.Err()
				}
				return 1, nil
			}, nil)
			work := func(ctx context.Context, s session.Session) (session.Session, error) {
				s, err := agent.Forward(ctx, s.With(session.UserText("one")))
				if err != nil {
					return s, err
				}
				if s, _, err = flow.CallTool(ctx, s, pay, struct{}{}); err == nil {
					stop(run.ErrShutdown) // in the first attempt, if it comes so far
					_, err = flow.Do(ctx, "last", func(context.Context) (int, error) { return 1, nil }, tool.NonIdempotent)
				}
				return s, err
			}
			rt := w.runtime(parrot(0, &asked))
			forward(t, ctx, start(t, rt, work), run.Queued)
			check(t, talk(t, rt, journal.SignalReceived{Kind: journal.Message, Text: "two"}))
			if cut {
				state, err := start(t, rt, work, resume).Forward(t.Context())
				if state != run.NeedsReview || !strings.Contains(err.Error(), "nobody knows whether it took effect") {
					t.Fatalf("state %s: %v", state, err)
				}
				happened := journal.Signal{To: home, Run: "r", Resolve: &journal.Resolved{Decision: run.Happened, Reason: "it did"}}
				check(t, rt.Runtime.Store.Apply(t.Context(), happened))
			}
			forward(t, t.Context(), start(t, rt, work, resume), run.Succeeded)
			if ran != 1 || !slices.Equal(asked, []string{"one"}) {
				t.Errorf("the tool ran %d times, the model was asked %q", ran, asked)
			}
		})
	}
}

// TestMessageLeft: a message that no step took becomes a chunk at the end.
func TestMessageLeft(t *testing.T) {
	var w world
	rt := w.runtime(nil)
	ex := start(t, rt, func(_ context.Context, s session.Session) (session.Session, error) {
		return s, talk(t, rt, journal.SignalReceived{Kind: journal.Message, Text: "too late"})
	})
	forward(t, t.Context(), ex, run.Succeeded)
	if got := texts(ex.Result()); !slices.Equal(got, []string{"too late"}) {
		t.Errorf("the session says %q", got)
	}
}

func TestToolApproval(t *testing.T) {
	type in struct {
		N    int    `json:"n"`
		Path string `json:"path,omitempty"`
	}
	var ran []int
	pay := tool.Func("pay", "Pays.", func(_ context.Context, v in) (int, error) {
		ran = append(ran, v.N)
		return v.N, nil
	}, nil)
	var w world
	calls := client(func(_ context.Context, r *llm.Request) (*llm.Response, error) {
		if r.Messages[len(r.Messages)-1].Role == llm.Tool {
			return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
		}
		return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{
			{ID: "1", Name: "pay", Args: `{"n":1}`}, {ID: "2", Name: "pay", Args: `{"n":2,"path":"ann"}`}, {ID: "3", Name: "pay", Args: `{"n":3}`},
		}}, nil
	})
	agent := &flow.Agent{Name: "a", Tools: []tool.Tool{pay}, Approve: func(_ tool.Spec, args json.RawMessage) bool {
		return !strings.Contains(string(args), "1")
	}}
	work := func(ctx context.Context, s session.Session) (session.Session, error) {
		return agent.Forward(ctx, s.With(session.UserText("go")))
	}
	rt := w.runtime(calls)
	state, err := start(t, rt, work).Forward(t.Context())
	if state != run.Waiting || !errors.Is(err, run.ErrSuspended) {
		t.Fatalf("state %s: %v", state, err)
	}
	for _, v := range []journal.SignalReceived{
		{Kind: journal.Approve, Path: "0.1.approval", By: "ana", Reason: "it is due", Value: `{"n":20,"path":"bob"}`},
		{Kind: journal.Refuse, Path: "0.2.approval", By: "ana", Reason: "too much"},
	} {
		check(t, talk(t, rt, v))
		if err := talk(t, rt, v); !errors.Is(err, run.ErrState) {
			t.Errorf("answered twice: %v", err)
		}
	}
	ex := start(t, w.runtime(calls), work, resume)
	forward(t, t.Context(), ex, run.Succeeded)
	if !slices.Equal(ran, []int{1, 20}) {
		t.Errorf("the tool ran with %v", ran)
	}
	// The record describes the call that ran, not the requested one.
	for _, d := range facts[journal.StepCompleted](t, &w, journal.KindStepCompleted) {
		if want := map[run.Path]string{"0.1": "pay bob", "0.1.approval": "approved by ana, edited: it is due"}[d.Path]; want != "" && d.Summary != want {
			t.Errorf("step %s says %q, want %q", d.Path, d.Summary, want)
		}
	}
	all := strings.Join(texts(ex.Result()), "|")
	if !strings.Contains(all, "too much") || !strings.HasSuffix(all, "done") {
		t.Errorf("the session says %q", all)
	}
}

// TestToolApprovalExpires: a call that is not approved in time does not run, and the
// model gets an error.
func TestToolApprovalExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := false
		pay := tool.Func("pay", "Pays.", func(context.Context, struct{}) (int, error) {
			ran = true
			return 1, nil
		}, nil)
		calls := client(func(_ context.Context, r *llm.Request) (*llm.Response, error) {
			if last := r.Messages[len(r.Messages)-1]; last.Role == llm.Tool {
				return &llm.Response{Text: "told: " + last.Text, Finish: llm.FinishStop}, nil
			}
			return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: "1", Name: "pay", Args: `{}`}}}, nil
		})
		agent := &flow.Agent{
			Name: "a", Tools: []tool.Tool{pay}, ApproveTimeout: time.Hour,
			Approve: func(tool.Spec, json.RawMessage) bool { return true },
		}
		work := func(ctx context.Context, s session.Session) (session.Session, error) {
			return agent.Forward(ctx, s.With(session.UserText("go")))
		}
		var w world
		rt := w.runtime(calls)
		forward(t, t.Context(), start(t, rt, work), run.Waiting)
		tick := journal.Signal{To: home, Tick: true}
		time.Sleep(time.Hour - time.Second)
		if err := rt.Runtime.Store.Apply(t.Context(), tick); !errors.Is(err, run.ErrState) {
			t.Errorf("before its time: %v", err)
		}
		time.Sleep(time.Second)
		check(t, rt.Runtime.Store.Apply(t.Context(), tick))
		ex := start(t, w.runtime(calls), work, resume)
		forward(t, t.Context(), ex, run.Succeeded)
		all := texts(ex.Result())
		if last := all[len(all)-1]; ran || !strings.HasPrefix(last, "told: ") || !strings.Contains(last, "this call was not approved in time") {
			t.Errorf("the tool ran: %v; the session says %q", ran, all)
		}
	})
}
