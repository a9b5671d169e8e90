package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// heardTokens is the number of tokens that the tests' models stream before an answer is
// cut off.
const heardTokens = 1000

// streaming is a model that streams heardTokens and then, a minute later, breaks off in
// the first faults requests, or answers.
type streaming struct {
	faults int
	asked  int
}

func (m *streaming) Client(context.Context, llm.Provider) (llm.Client, error) { return m, nil }

func (m *streaming) Complete(ctx context.Context, _ *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	m.asked++
	if sink != nil {
		for range heardTokens {
			sink(llm.Delta{Text: "word"})
		}
	}
	select {
	case <-time.After(time.Minute):
	case <-ctx.Done():
		return nil, fmt.Errorf("model: %w", context.Cause(ctx))
	}
	if m.asked <= m.faults {
		return nil, llm.Rebuild(llm.CodeTruncated, "it stopped")
	}
	return &llm.Response{Text: "answer", Finish: llm.FinishStop, Usage: session.Usage{Input: 10, Output: 5}}, nil
}

// agentOnce asks an agent once.
func agentOnce(ctx context.Context, s session.Session) (session.Session, error) {
	return (&flow.Agent{Name: "a"}).Forward(ctx, s.With(session.UserText("hello")))
}

// facts are the events of one kind in the log of the run.
func facts[T any](t *testing.T, w *world, kind string) (all []T) {
	t.Helper()
	for e, err := range w.Read(t.Context(), home, commitlog.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range e.Commit.Events {
			if ev.Kind == kind {
				v := must(journal.Decode[T](ev))
				all = append(all, v)
			}
		}
	}
	return all
}

func ended(t *testing.T, w *world) journal.Ended {
	t.Helper()
	all := facts[journal.Ended](t, w, journal.KindEnded)
	if len(all) != 1 {
		t.Fatalf("the run ended %d times", len(all))
	}
	return all[0]
}

// wantLost demands that calls that were cut off are in the usage as an estimate: the
// prompt, and the received part of the answer.
func wantLost(t *testing.T, what string, used, lost session.Usage, calls, answered int64) {
	t.Helper()
	if lost.Calls != calls || lost.Output != calls*heardTokens || lost.Input < calls || lost.Input > calls*200 {
		t.Errorf("%s: lost %+v; want %d calls with %d tokens each", what, lost, calls, heardTokens)
	}
	if own := used.Sub(lost); own.Calls != answered || own.Tokens() != 15*answered {
		t.Errorf("%s: used %+v, of which lost %+v; want %d answers beside", what, used, lost, answered)
	}
}

// TestInterruptedIsCharged: an answer that a user's message interrupted is charged.
func TestInterruptedIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		rt := w.runtime(&streaming{})
		ex := start(t, rt, agentOnce)
		go func() {
			time.Sleep(time.Second)
			if err := talk(t, rt, journal.SignalReceived{Kind: journal.Message, Text: "two", Interrupt: true}); err != nil {
				t.Error(err)
			}
		}()
		forward(t, t.Context(), ex, run.Succeeded)
		step := facts[journal.StepCompleted](t, &w, journal.KindStepCompleted)[0]
		wantLost(t, "the step", step.Usage, step.Lost, 1, 1)
		e := ended(t, &w)
		wantLost(t, "the run", e.Usage, e.Lost, 1, 1)
		if u := ex.Result().Usage(); u.Tokens() != 15 {
			t.Errorf("the session's own usage is %+v: its chunks are of one call", u)
		}
	})
}

// patient is a model whose first requests time out.
type patient struct {
	timeouts int
	asked    int
}

func (m *patient) Client(context.Context, llm.Provider) (llm.Client, error) { return m, nil }

func (m *patient) Complete(context.Context, *llm.Request, func(llm.Delta)) (*llm.Response, error) {
	if m.asked++; m.asked <= m.timeouts {
		return nil, llm.Rebuild(llm.CodeTimeout, "no first token")
	}
	return &llm.Response{Text: "answer", Finish: llm.FinishStop, Usage: session.Usage{Input: 10, Output: 5}}, nil
}

// TestSilentTriesAreCharged: a try that timed out may have been charged, so the record
// includes it.
func TestSilentTriesAreCharged(t *testing.T) { synctest.Test(t, silentTriesAreCharged) }

func silentTriesAreCharged(t *testing.T) {
	var w world
	ex := start(t, w.runtime(&patient{timeouts: 2}), agentOnce)
	forward(t, t.Context(), ex, run.Succeeded)
	step, e := facts[journal.StepCompleted](t, &w, journal.KindStepCompleted)[0], ended(t, &w)
	for what, u := range map[string][2]session.Usage{"step": {step.Usage, step.Lost}, "run": {e.Usage, e.Lost}} {
		used, lost := u[0], u[1]
		if lost.Calls != 2 || lost.Input < 2 || lost.Output != 0 || used.Sub(lost).Tokens() != 15 {
			t.Errorf("%s: used %+v, lost %+v; want the prompt twice beside 15 tokens", what, used, lost)
		}
	}
}

// counting is a model whose first answer breaks off after its server reported counts.
type counting struct{ asked int }

func (m *counting) Client(context.Context, llm.Provider) (llm.Client, error) { return m, nil }

func (m *counting) Complete(context.Context, *llm.Request, func(llm.Delta)) (*llm.Response, error) {
	if m.asked++; m.asked == 1 {
		return nil, &llm.Error{Code: llm.CodeTruncated, Used: session.Usage{Input: 900, Output: 3, CacheRead: 800, CacheWrite: 50}}
	}
	return &llm.Response{Text: "answer", Finish: llm.FinishStop, Usage: session.Usage{Input: 10, Output: 5}}, nil
}

// TestStatedCountsAreCharged: the counts that a server reports before its answer breaks
// off are charged instead of an estimate.
func TestStatedCountsAreCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		forward(t, t.Context(), start(t, w.runtime(&counting{}), agentOnce), run.Succeeded)
		want := session.Usage{Calls: 1, Input: 900, Output: 3, CacheRead: 800, CacheWrite: 50}
		if got := ended(t, &w).Lost; got != want {
			t.Errorf("lost %+v, want %+v", got, want)
		}
	})
}

// TestSilentTriesEndWithTheBudget: the possible usage of silent tries leaves no budget
// for another.
func TestSilentTriesEndWithTheBudget(t *testing.T) { synctest.Test(t, silentTriesEndWithTheBudget) }

func silentTriesEndWithTheBudget(t *testing.T) {
	var w world
	m := &patient{timeouts: 1000}
	ex := start(t, w.runtime(m), agentOnce, func(task *journal.Task) { task.Budget.Tokens = 15 })
	state, err := ex.Forward(t.Context())
	if state != run.Failed || !errors.Is(err, run.ErrBudget) {
		t.Errorf("state %s: %v; want that the budget is used up", state, err)
	}
	if e := ended(t, &w); m.asked > 3 || e.Lost.Calls != int64(m.asked) || e.Lost.Input < 15 {
		t.Errorf("asked %d times, lost %+v", m.asked, e.Lost)
	}
}

// TestUncountedAnswersEndWithTheBudget: an answer whose server counts no tokens is
// charged by estimate, so that budgets still end runs; its cost comes from the prices of
// the list, or from the server.
func TestUncountedAnswersEndWithTheBudget(t *testing.T) {
	perToken := func(u session.Usage) int64 { return u.Input + u.Output }
	for name, tt := range map[string]struct {
		budget  run.Budget
		choices func(llm.Provider) ([]chain.Choice, error)
		states  int64 // micro-USD
		asked   int   // at most
		cost    string
		says    string
	}{
		"tokens":                       {budget: run.Budget{Tokens: 1500}, asked: 2, says: "of 1500 tokens used"},
		"money by the list":            {budget: run.Budget{MicroUSD: 1500}, choices: offering(chain.Choice{Name: "m", Cost: "priced", Price: perToken}), asked: 2, cost: "priced", says: "of 1500 micro-USD used"},
		"money that the server states": {budget: run.Budget{MicroUSD: 18}, states: 9, asked: 2, cost: "stated", says: "18 of 18"},
		"money that nothing states":    {budget: run.Budget{MicroUSD: 1500}, asked: 1, says: "the cost of calls of model m-2026 is unknown"},
		"a promise that is not kept":   {budget: run.Budget{MicroUSD: 1500}, choices: offering(chain.Choice{Name: "m", Cost: "stated"}), asked: 1, says: "the cost of calls of model m is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			asked := 0
			rt := w.runtime(uncounted(&asked, tt.states))
			rt.Runtime.Choices = tt.choices
			state, err := start(t, rt, spend, func(task *journal.Task) { task.Budget = tt.budget }).Forward(t.Context())
			if state != run.Failed || !errors.Is(err, run.ErrBudget) || !strings.Contains(err.Error(), tt.says) || asked != tt.asked {
				t.Errorf("state %s after %d calls, want %d: %v; want %q", state, asked, tt.asked, err, tt.says)
			}
			e, step := ended(t, &w), facts[journal.StepCompleted](t, &w, journal.KindStepCompleted)[0]
			wantLost(t, "the run", e.Usage, e.Lost, int64(asked), 0)
			if step.Cost != tt.cost || (step.Usage.MicroUSD > 0) != (tt.cost != "") {
				t.Errorf("the first call cost %d, and it is said to be %q; want %q", step.Usage.MicroUSD, step.Cost, tt.cost)
			}
		})
	}
}

// uncounted is a spender whose answers have heardTokens, which its server does not count.
func uncounted(asked *int, states int64) streamer {
	return func(ctx context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
		resp, err := spender(asked, states)(ctx, r)
		for range heardTokens - 2 { // and two of its words
			sink(llm.Delta{Reasoning: " word"})
			resp.Reasoning += " word"
		}
		resp.Usage, resp.Uncounted = session.Usage{MicroUSD: states}, true
		return resp, err
	}
}

// streamer is a model that sends pieces.
type streamer func(context.Context, *llm.Request, func(llm.Delta)) (*llm.Response, error)

func (f streamer) Client(context.Context, llm.Provider) (llm.Client, error) { return f, nil }

func (f streamer) Complete(ctx context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	return f(ctx, r, sink)
}

// cancelled cancels the run after a second.
func cancelled(t *testing.T, rt *inprocess.Runtime) {
	time.Sleep(time.Second)
	if err := rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Cancel: &journal.CancelRequested{Reason: "no"}}); err != nil {
		t.Error(err)
	}
}

// TestCancelledIsCharged: a call that ended with the run is charged.
func TestCancelledIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		rt := w.runtime(&streaming{})
		ex := start(t, rt, agentOnce)
		go cancelled(t, rt)
		forward(t, t.Context(), ex, run.Cancelled)
		e := ended(t, &w)
		wantLost(t, "the run", e.Usage, e.Lost, 1, 0)
	})
}

// TestBrokenOffIsCharged: an answer that broke off is charged, and no try follows that
// exceeds the budget.
func TestBrokenOffIsCharged(t *testing.T) {
	for _, tokens := range []int64{0, 2*heardTokens + 100, heardTokens} {
		synctest.Test(t, func(t *testing.T) {
			var w world
			m := &streaming{faults: 2}
			ex := start(t, w.runtime(m), agentOnce, func(task *journal.Task) { task.Budget.Tokens = tokens })
			state, err := ex.Forward(t.Context())
			step, e := facts[journal.StepCompleted](t, &w, journal.KindStepCompleted)[0], ended(t, &w)
			if tokens == heardTokens {
				if state != run.Failed || !errors.Is(err, run.ErrBudget) || m.asked != 1 || step.Code != run.CodeBudget {
					t.Fatalf("state %s after %d calls: %v; step %+v", state, m.asked, err, step)
				}
				wantLost(t, "the step", step.Usage, step.Lost, 1, 0)
				wantLost(t, "the run", e.Usage, e.Lost, 1, 0)
				return
			}
			if state != run.Succeeded || m.asked != 3 {
				t.Fatalf("state %s after %d calls: %v", state, m.asked, err)
			}
			wantLost(t, "the step", step.Usage, step.Lost, 2, 1)
			wantLost(t, "the run", e.Usage, e.Lost, 2, 1)
		})
	}
}

// TestReleasedIsCharged: the next attempt has the usage of a call that a shutdown cut
// off.
func TestReleasedIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(run.ErrShutdown) })
		forward(t, ctx, start(t, w.runtime(&streaming{}), agentOnce), run.Queued)
		released := facts[journal.Released](t, &w, journal.KindReleased)[0]
		wantLost(t, "the release", released.Lost, released.Lost, 1, 0)
		forward(t, t.Context(), start(t, w.runtime(&streaming{}), agentOnce, resume), run.Succeeded)
		e := ended(t, &w)
		wantLost(t, "the run", e.Usage, e.Lost, 1, 1)
	})
}

// TestKilledIsCharged: the usage of a call that ended with its process is unknown, so
// each attempt that may have made it counts with its maximum usage: once, also for the
// attempts that follow.
func TestKilledIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		limited := func(task *journal.Task) { task.Budget.Tokens = 100_000 }
		killed := make(chan struct{})
		defer close(killed)
		dead := client(func(context.Context, *llm.Request) (*llm.Response, error) {
			<-killed
			return nil, errors.New("killed")
		})
		for i := range 2 { // two processes die with the first call in flight
			change := limited
			if i > 0 {
				change = resume
			}
			ex := start(t, w.runtime(dead), agentOnce, change)
			go func() { _, _ = ex.Forward(t.Context()) }()
			synctest.Wait()
		}
		const reply = 4096
		// The third one makes the first call, waits an hour and dies outside of a step.
		waits := func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := agentOnce(ctx, s)
			if err == nil {
				err = flow.Sleep(ctx, time.Hour)
			}
			if err == nil {
				s, err = agentOnce(ctx, s)
			}
			return s, err
		}
		rt := w.runtime(&streaming{})
		forward(t, t.Context(), start(t, rt, waits, resume), run.Waiting)
		first := facts[journal.StepCompleted](t, &w, journal.KindStepCompleted)[0]
		if l := first.Lost; l.Calls != 2 || l.Tokens() < 2*reply || l.Tokens() > 2*(reply+200) {
			t.Errorf("two attempts were killed, and the step says that %+v was lost", l)
		}
		time.Sleep(time.Hour)
		check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Tick: true}))
		forward(t, t.Context(), start(t, w.runtime(&streaming{}), waits, resume), run.Succeeded)
		e := ended(t, &w)
		if e.Lost != first.Lost {
			t.Errorf("the run lost %+v; its only loss was %+v: a wait loses nothing", e.Lost, first.Lost)
		}
		if own := e.Usage.Sub(e.Lost); own.Calls != 2 || own.Tokens() != 30 {
			t.Errorf("beside, it used %+v in two calls", own)
		}
		for _, d := range facts[journal.StepCompleted](t, &w, journal.KindStepCompleted)[1:] {
			if d.Lost != (session.Usage{}) {
				t.Errorf("step %s lost %+v", d.Path, d.Lost)
			}
		}
		if !strings.Contains(ended(t, &w).Output, "answer") {
			t.Error("no answer")
		}
	})
}

// TestLateAnswerIsCharged: an answer that comes after the run was cancelled is discarded,
// and charged with its server's counts.
func TestLateAnswerIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		rt := w.runtime(client(func(context.Context, *llm.Request) (*llm.Response, error) {
			time.Sleep(engine.GiveUpAfter / 2)
			return &llm.Response{Text: "late", Finish: llm.FinishStop, Usage: session.Usage{Input: 10, Output: 5}}, nil
		}))
		ex := start(t, rt, agentOnce)
		go cancelled(t, rt)
		forward(t, t.Context(), ex, run.Cancelled)
		if e := ended(t, &w); e.Usage.Tokens() != 15 || e.Usage.Calls != 1 || e.Lost != (session.Usage{}) {
			t.Errorf("the run used %+v and lost %+v", e.Usage, e.Lost)
		}
	})
}

// TestUselessAnswerIsCharged: an answer that the step cannot use, because the model
// called a tool or returned no text three times, is charged anyway.
func TestUselessAnswerIsCharged(t *testing.T) {
	used := session.Usage{Input: 10, Output: 5, MicroUSD: 7}
	called := llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: "c", Name: "x"}}, Usage: used, Model: "m"}
	for _, tt := range []struct {
		name   string
		answer llm.Response
		calls  int64
		code   run.Code
		step   flow.Func
	}{
		{"the selector's calls a tool", called, 1, run.CodeError, func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := (&flow.Selector{Name: "s"}).Select(ctx, s, say("x"))
			return s, err
		}},
		{"the compressor's calls a tool", called, 1, run.CodeError, (&flow.Compressor{Name: "c"}).Forward},
		{"the compressor's is empty", llm.Response{Finish: llm.FinishStop, Usage: used, Model: "m"}, 3, run.CodeEmpty, (&flow.Compressor{Name: "c"}).Forward},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w world
			rt := w.runtime(client(func(context.Context, *llm.Request) (*llm.Response, error) { return &tt.answer, nil }))
			ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
				return tt.step(ctx, s.With(session.UserText("hello")))
			})
			forward(t, t.Context(), ex, run.Failed)
			want := session.Usage{Calls: 1, Input: 10, Output: 5, MicroUSD: 7}
			all := facts[journal.StepCompleted](t, &w, journal.KindStepCompleted)
			if d := all[len(all)-1]; int64(len(all)) != tt.calls || d.Usage != want || d.Code != tt.code || d.Model != "m" || d.Finish != string(tt.answer.Finish) {
				t.Errorf("step %d ended with %s, %s of model %q and used %+v, want %+v", len(all), d.Code, d.Finish, d.Model, d.Usage, want)
			}
			want = session.Usage{Calls: tt.calls, Input: 10 * tt.calls, Output: 5 * tt.calls, MicroUSD: 7 * tt.calls}
			if e := ended(t, &w); e.Usage != want || e.Code != tt.code {
				t.Errorf("the run used %+v, want %+v", e.Usage, want)
			}
		})
	}
}
