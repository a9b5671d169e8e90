package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

var home = session.Key{Tenant: session.DefaultTenant, ID: "home"}

// world is a log that outlives the runtimes over it.
type world struct {
	commitlog.Memory
	n int
}

// runtime is a process over the world: a new incarnation each time.
func (w *world) runtime(m llm.Models) *inprocess.Runtime {
	w.n++
	values := journal.NewValues(&w.Memory)
	return &inprocess.Runtime{Runtime: engine.Runtime{
		Store:  journal.NewStore(&w.Memory, &journal.StoreOptions{Incarnation: fmt.Sprint("i", w.n), Values: values}),
		Values: values, Models: m,
	}}
}

// start begins the run "r" of a function, or resumes it.
func start(t *testing.T, rt *inprocess.Runtime, f flow.Func, change ...func(*journal.Task)) *engine.Execution {
	t.Helper()
	task := journal.Task{ID: "r", Workflow: "w", Session: home}
	for _, c := range change {
		c(&task)
	}
	ex := must(rt.Runtime.Begin(t.Context(), flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return f }}, task))
	return ex
}

func resume(task *journal.Task) { task.Resume = true }

func TestDoIsRecorded(t *testing.T) {
	var w world
	var calls atomic.Int32
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		n, err := flow.Do(ctx, "count", func(context.Context) (int, error) { return int(calls.Add(1)), nil }, tool.NonIdempotent)
		if err != nil {
			return s, err
		}
		_, err = flow.Do(ctx, "fail", func(context.Context) (int, error) { return 0, fmt.Errorf("disk on fire: %w", context.DeadlineExceeded) }, tool.NonIdempotent)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "disk on fire") {
			return s, fmt.Errorf("the outcome was %v", err)
		}
		return s.With(session.UserText(fmt.Sprint(n))), nil
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ex := start(t, w.runtime(nil), func(c context.Context, s session.Session) (session.Session, error) {
		s, err := f(c, s)
		if err == nil {
			cancel(run.ErrShutdown) // the node stops before the run ends
			_, err = flow.Do(c, "never", func(context.Context) (int, error) { calls.Add(100); return 0, nil }, tool.NonIdempotent)
		}
		return s, err
	})
	if state, err := ex.Forward(ctx); state != run.Queued || !errors.Is(err, run.ErrShutdown) {
		t.Fatalf("state %s, error %v", state, err)
	}
	again := start(t, w.runtime(nil), f, resume)
	state, err := again.Forward(t.Context())
	if state != run.Succeeded || err != nil {
		t.Fatalf("state %s, error %v", state, err)
	}
	if calls.Load() != 1 || again.Attempt() != 2 {
		t.Errorf("%d calls in %d attempts", calls.Load(), again.Attempt())
	}
	if c, _ := again.Result().Last(session.User); c.Text() != "1" {
		t.Errorf("result %q", c.Text())
	}
}

// TestDoErrorHasNoValue: a value beside an error is not recorded, so the execution that
// called the function does not get it either.
func TestDoErrorHasNoValue(t *testing.T) {
	rt := &inprocess.Runtime{}
	must(rt.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		n, err := flow.Do(ctx, "half", func(context.Context) (int, error) { return 7, errors.New("half done") }, tool.NonIdempotent)
		if n != 0 || err == nil {
			t.Errorf("Do returned %d, %v; a later execution gets 0 and the error", n, err)
		}
		return s, nil
	}), session.New(session.UserText("go"))))
}

// TestCutOffEffect: a function that must not run twice is cut off in the middle; the run
// waits for an operator, whose decision resumes it.
func TestCutOffEffect(t *testing.T) {
	for _, decision := range []string{run.Happened, run.Again, run.Fail} {
		t.Run(decision, func(t *testing.T) {
			var w world
			var calls int
			inside := make(chan struct{})
			f := func(ctx context.Context, s session.Session) (session.Session, error) {
				v, err := flow.Do(ctx, "pay", func(context.Context) (string, error) {
					calls++
					if calls == 1 {
						close(inside)
						select {} // the process is killed here
					}
					return "paid", nil
				}, tool.NonIdempotent)
				if err != nil {
					return s, err
				}
				return s.With(session.UserText("got " + v)), nil
			}
			ex := start(t, w.runtime(nil), f)
			go func() { _, _ = ex.Forward(t.Context()) }() // never returns
			<-inside

			rt := w.runtime(nil)
			state, err := start(t, rt, f, resume).Forward(t.Context())
			if state != run.NeedsReview || !errors.Is(err, run.ErrReview) || !strings.Contains(err.Error(), `"pay"`) {
				t.Fatalf("state %s, error %v", state, err)
			}
			sig := journal.Signal{To: home, Run: "r", Resolve: &journal.Resolved{Decision: decision, Reason: "looked at the bank", Value: `"by hand"`}}
			check(t, rt.Runtime.Store.Apply(t.Context(), sig))
			last := start(t, w.runtime(nil), f, resume)
			if decision == run.Fail {
				if last.State() != run.Failed {
					t.Errorf("state %s", last.State())
				}
				return
			}
			forward(t, t.Context(), last, run.Succeeded)
			c, _ := last.Result().Last(session.User)
			want, runs := "got by hand", 1
			if decision == run.Again {
				want, runs = "got paid", 2
			}
			if c.Text() != want || calls != runs {
				t.Errorf("result %q after %d calls, want %q after %d", c.Text(), calls, want, runs)
			}
		})
	}
}

func TestCodeChange(t *testing.T) {
	var w world
	ctx, cancel := context.WithCancelCause(t.Context())
	old := func(c context.Context, s session.Session) (session.Session, error) {
		if _, err := flow.Do(c, "one", func(context.Context) (int, error) { return 1, nil }, tool.NonIdempotent); err != nil {
			return s, err
		}
		cancel(run.ErrShutdown)
		_, err := flow.Do(c, "two", func(context.Context) (int, error) { return 2, nil }, tool.NonIdempotent)
		return s, err
	}
	forward(t, ctx, start(t, w.runtime(nil), old), run.Queued)
	changed := func(c context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Do(c, "uno", func(context.Context) (int, error) { return 1, nil }, tool.NonIdempotent)
		return s, err
	}
	state, err := start(t, w.runtime(nil), changed, resume).Forward(t.Context())
	if state != run.NeedsReview || !errors.Is(err, run.ErrMismatch) || !strings.Contains(err.Error(), "step 0") {
		t.Fatalf("state %s, error %v", state, err)
	}
}

func TestScope(t *testing.T) {
	if _, err := flow.Fork(t.Context(), session.New()); err == nil || !strings.Contains(err.Error(), "not inside a run") {
		t.Errorf("outside of a run: %v", err)
	}
	var w world
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Do(ctx, "outer", func(inner context.Context) (int, error) {
			_, err := flow.Do(inner, "inner", func(context.Context) (int, error) { return 0, nil }, tool.NonIdempotent)
			return 0, err
		}, tool.NonIdempotent)
		if !errors.Is(err, run.ErrNestedStep) {
			return s, fmt.Errorf("a step inside a step: %v", err)
		}
		a, b := flow.NewID(ctx), flow.NewID(ctx)
		if a == b || len(a) != 32 || flow.Now(ctx).IsZero() {
			return s, fmt.Errorf("ids %q and %q, now %v", a, b, flow.Now(ctx))
		}
		return s.With(session.UserText(a)), nil
	}
	forward(t, t.Context(), start(t, w.runtime(nil), f), run.Succeeded)
}

// TestShadow: extending an older value, the most common mistake, makes a branch that ends
// with a reason naming the line.
func TestShadow(t *testing.T) {
	var w world
	rt := w.runtime(echo)
	var warnings []string
	rt.Runtime.OnWarning = func(_ run.ID, text string) { warnings = append(warnings, text) }
	agent := &flow.Agent{Name: "a"}
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := agent.Forward(ctx, s.With(session.UserText("one")))
		if err != nil {
			return s, err
		}
		if _, err := agent.Forward(ctx, s.With(session.UserText("dropped"))); err != nil { // the result is dropped
			return s, err
		}
		return agent.Forward(ctx, s.With(session.UserText("two")))
	}
	ex := start(t, rt, f)
	state, err := ex.Forward(t.Context())
	if state != run.Succeeded {
		t.Fatalf("state %s, error %v", state, err)
	}
	var texts []string
	for _, c := range ex.Result().Chunks() {
		texts = append(texts, c.Text())
	}
	if got := strings.Join(texts, ","); got != "one,echo one,two,echo two" && got != "one,echo one,dropped,echo dropped,two,echo two" {
		t.Errorf("chunks %s", got)
	}
	if len(warnings) == 0 || !strings.Contains(warnings[0], "durable_test.go:") {
		t.Errorf("warnings %q", warnings)
	}
	t.Log(warnings, texts)
}

// TestEditsAfterFork: a value with pending edits that is forked and then edited further
// is not an older value.
func TestEditsAfterFork(t *testing.T) {
	var w world
	rt := w.runtime(echo)
	rt.Runtime.OnWarning = func(_ run.ID, text string) { t.Error(text) }
	agent := &flow.Agent{Name: "a"}
	ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
		s = s.With(session.UserText("one"))
		try, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		if err := flow.Reject(ctx, try, "only a try"); err != nil {
			return s, err
		}
		return agent.Forward(ctx, s.With(session.UserText("two")))
	})
	forward(t, t.Context(), ex, run.Succeeded)
	var texts []string
	for _, c := range ex.Result().Chunks() {
		texts = append(texts, c.Text())
	}
	if got := strings.Join(texts, ","); got != "one,two,echo two" {
		t.Errorf("chunks %s", got)
	}
}

var echo = model(func(r *llm.Request) *llm.Response {
	text := "nothing"
	for _, m := range r.Messages {
		if m.Role == llm.User {
			text = m.Text
		}
	}
	return &llm.Response{Text: "echo " + text, Finish: llm.FinishStop, Usage: session.Usage{Input: 10, Output: 2}}
})

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		rt := w.runtime(nil)
		f := func(ctx context.Context, s session.Session) (session.Session, error) {
			try, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			_, err = flow.Do(ctx, "wait", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, tool.ReadOnly)
			return try, err
		}
		ex := start(t, rt, f)
		done := make(chan error, 1)
		go func() {
			_, err := ex.Forward(t.Context())
			done <- err
		}()
		time.Sleep(time.Second)
		check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Cancel: &journal.CancelRequested{By: "ops", Reason: "too slow"}}))
		if err := <-done; !errors.Is(err, run.ErrCancelled) || ex.State() != run.Cancelled {
			t.Fatalf("state %s, error %v", ex.State(), err)
		}
		for _, k := range w.Keys() {
			s := must(rt.Runtime.Values.At(t.Context(), session.Ref{Key: k}))
			if k != home && s.Closing().State != session.ClosedCancelled {
				t.Errorf("branch %s is %+v", k.ID, s.Closing())
			}
		}
	})
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		f := func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Do(ctx, "wait", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, tool.ReadOnly)
			return s, err
		}
		ex := start(t, w.runtime(nil), f, func(task *journal.Task) { task.Deadline = time.Now().Add(time.Minute) })
		if state, err := ex.Forward(t.Context()); state != run.TimedOut || !errors.Is(err, run.ErrDeadline) {
			t.Fatalf("state %s, error %v", state, err)
		}
	})
}

func TestBudget(t *testing.T) {
	var w world
	agent := &flow.Agent{Name: "a"}
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		var err error
		for i := range 10 {
			if s, err = agent.Forward(ctx, s.With(session.UserText(fmt.Sprint(i)))); err != nil {
				return s, err
			}
		}
		return s, nil
	}
	ex := start(t, w.runtime(echo), f, func(task *journal.Task) { task.Budget.Tokens = 30 })
	state, err := ex.Forward(t.Context())
	if state != run.Failed || !errors.Is(err, run.ErrBudget) {
		t.Fatalf("state %s, error %v", state, err)
	}
	s, err := w.runtime(nil).Runtime.Values.At(t.Context(), session.Ref{Key: home})
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Usage().Tokens(); n != 36 { // 12 a call: the third is the one that exceeds
		t.Errorf("%d tokens used of 30", n)
	}
}

func TestParallelTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := tool.Func("slow", "Takes a second.", func(_ context.Context, in struct {
			N int `json:"n"`
		},
		) (int, error) {
			time.Sleep(time.Second)
			return in.N, nil
		}, &tool.FuncOptions{Effect: tool.ReadOnly})
		m := model(func(r *llm.Request) *llm.Response {
			if r.Messages[len(r.Messages)-1].Role == llm.Tool {
				return &llm.Response{Text: "done", Finish: llm.FinishStop}
			}
			resp := &llm.Response{Finish: llm.FinishTools}
			for i := range 64 {
				resp.Calls = append(resp.Calls, session.ToolCall{ID: fmt.Sprint("c", i), Name: "slow", Args: fmt.Sprintf(`{"n":%d}`, i)})
			}
			return resp
		})
		began := time.Now()
		s := must((&inprocess.Runtime{Runtime: engine.Runtime{Models: m}}).Run(t.Context(), &flow.Agent{Name: "a", Tools: []tool.Tool{slow}}, session.New(session.UserText("go"))))
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("64 calls of a second took %v", took)
		}
		for i := range 64 {
			if c, _ := s.At(2 + i); c.CallID() != fmt.Sprint("c", i) || c.Text() != fmt.Sprint(i) {
				t.Fatalf("row %d answers %s with %s", i, c.CallID(), c.Text())
			}
		}
	})
}

func TestSummaryAndConcatenation(t *testing.T) {
	var w world
	agent := &flow.Agent{Name: "a"}
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		left, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		if left, err = agent.Forward(ctx, left.With(session.UserText("left"))); err != nil {
			return s, err
		}
		right, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		if right, err = agent.Forward(ctx, right.With(session.UserText("right"))); err != nil {
			return s, err
		}
		both, err := flow.Concatenate(ctx, left, right)
		if err != nil {
			return s, err
		}
		if both.Len() != 4 {
			return s, fmt.Errorf("%d chunks", both.Len())
		}
		return (&flow.Compressor{Name: "c"}).Forward(ctx, both)
	}
	ex := start(t, w.runtime(echo), f)
	forward(t, t.Context(), ex, run.Succeeded)
	if s := ex.Result(); s.Len() != 1 || s.Key() != home {
		t.Errorf("result %s has %d chunks", s.Ref(), s.Len())
	}
}

func TestRecallFollowsTheSession(t *testing.T) {
	var w world
	var asked [][]llm.Message
	m := model(func(r *llm.Request) *llm.Response {
		asked = append(asked, r.Messages)
		return &llm.Response{Text: "ok", Finish: llm.FinishStop}
	})
	notes := notebook.New(nil)
	rt := w.runtime(m)
	rt.Runtime.Memory = func(context.Context, session.Tenant, string) (memory.Store, error) { return notes, nil }
	agent := &flow.Agent{Name: "a", Prompt: "sys", Memory: "m"}
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		if _, err := flow.Remember(ctx, "m", "prefs", "The user likes dark colours"); err != nil {
			return s, err
		}
		return agent.Forward(ctx, s.With(session.UserText("which colours?")))
	}
	ex := start(t, rt, f)
	forward(t, t.Context(), ex, run.Succeeded)
	last := asked[0][len(asked[0])-1]
	if len(asked[0]) != 3 || last.Role != llm.User || !strings.Contains(last.Text, `"The user likes dark colours"`) {
		t.Errorf("prompt %+v", asked[0])
	}
	for _, c := range ex.Result().Chunks() {
		if strings.Contains(c.Text(), "dark") {
			t.Errorf("the note became a chunk: %s", c.Text())
		}
	}
}
