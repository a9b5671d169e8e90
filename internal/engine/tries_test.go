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

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

var errDown = errors.New("the service is down")

// tried are the recorded tries: path, pause, and code.
func (w *world) tried(t *testing.T) (all []string) {
	t.Helper()
	for _, d := range w.steps(t, home) {
		all = append(all, fmt.Sprintf("%s %v %s", d.Path, time.Duration(d.Retry)*time.Millisecond, d.Code))
	}
	return all
}

// attempt is a Do of a policy whose function gets the number of its call.
func attempt(calls *int, f func(ctx context.Context, n int) error, e tool.Effect, p ...tool.Retry) flow.Func {
	return func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Do(ctx, "fetch", func(ctx context.Context) (int, error) {
			*calls++
			return *calls, f(ctx, *calls)
		}, e, p...)
		return s, err
	}
}

// TestPolicyBridgesOutage: the fifth of six calls fails for six seconds. The run succeeds,
// in place, and makes each other call once.
func TestPolicyBridgesOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		var down time.Time
		calls := map[int]int{}
		var seen []string
		six := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			for i := range 6 {
				_, err := flow.Do(ctx, fmt.Sprint("call ", i+1), func(ctx context.Context) (int, error) {
					if calls[i]++; i != 4 {
						return i, nil
					}
					at, _ := flow.RunInfo(ctx)
					seen = append(seen, fmt.Sprint(at.Path, " ", at.Try))
					if down.IsZero() {
						down = time.Now()
					}
					if time.Since(down) < 6*time.Second {
						return 0, errDown
					}
					return i, nil
				}, tool.Idempotent, tool.Retry{Times: 5})
				if err != nil {
					return s, err
				}
			}
			return s, nil
		})
		forward(t, t.Context(), start(t, w.runtime(nil), six), run.Succeeded)
		if took := time.Since(down); took != 7*time.Second {
			t.Errorf("it takes %v, want the pauses 1 s, 2 s and 4 s", took)
		}
		if diff := cmp.Diff(map[int]int{0: 1, 1: 1, 2: 1, 3: 1, 4: 4, 5: 1}, calls); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"0 0s ", "1 0s ", "2 0s ", "3 0s ", "4.try.1 1s error", "4.try.2 2s error", "4.try.3 4s error", "4 0s ", "5 0s "}, w.tried(t)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"4 1", "4 2", "4 3", "4 4"}, seen); diff != "" {
			t.Error(diff) // one path for all tries: a key of an idempotent call
		}
	})
}

// TestTries: which errors end the tries, and by which policy.
func TestTries(t *testing.T) {
	fails := func(context.Context, int) error { return errDown }
	for name, tt := range map[string]struct {
		policy []tool.Retry
		effect tool.Effect
		f      func(context.Context, int) error
		calls  int
		err    error
	}{
		"by default":     {f: fails, effect: tool.ReadOnly, calls: 3},
		"sandboxed":      {f: fails, effect: tool.Sandboxed, calls: 3},
		"once":           {f: fails, effect: tool.ReadOnly, policy: []tool.Retry{{Times: 1}}, calls: 1},
		"not repeatable": {f: fails, effect: tool.NonIdempotent, calls: 1},
		"selected":       {f: fails, effect: tool.NonIdempotent, policy: []tool.Retry{{Times: 2, If: func(err error) bool { return errors.Is(err, errDown) }}}, calls: 2},
		"another error":  {f: fails, effect: tool.ReadOnly, policy: []tool.Retry{{If: func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }}}, calls: 1},
		"permanent": {f: func(_ context.Context, n int) error {
			return map[bool]error{true: errDown, false: flow.Permanent(errDown)}[n < 2]
		}, effect: tool.ReadOnly, calls: 2},
		"a panic":           {f: func(context.Context, int) error { panic("no") }, effect: tool.ReadOnly, calls: 1},
		"a code of its own": {f: func(context.Context, int) error { return run.ErrMalformed }, effect: tool.ReadOnly, calls: 1, err: run.ErrMalformed},
		"the total":         {f: fails, effect: tool.ReadOnly, policy: []tool.Retry{{Times: 9, Total: 4 * time.Second}}, calls: 3}, // after 0, 1 and 3 s
		"the longest pause": {f: fails, effect: tool.ReadOnly, policy: []tool.Retry{{Times: 4, First: 100 * time.Millisecond, Most: 100 * time.Millisecond, Total: 300 * time.Millisecond}}, calls: 4},
		"a step inside":     {f: func(ctx context.Context, _ int) error { return flow.Sleep(ctx, 1) }, effect: tool.ReadOnly, calls: 1, err: run.ErrNestedStep},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w world
				calls := 0
				err := forward(t, t.Context(), start(t, w.runtime(nil), attempt(&calls, tt.f, tt.effect, tt.policy...)), run.Failed)
				if calls != tt.calls || err == nil || tt.err != nil && !errors.Is(err, tt.err) {
					t.Errorf("%d calls, want %d: %v", calls, tt.calls, err)
				}
				all := w.steps(t, home)
				if last := all[len(all)-1]; len(all) != tt.calls || last.Retry != 0 || last.Code == "" {
					t.Errorf("%d steps are recorded, the last is %+v", len(all), last)
				}
			})
		})
	}
}

// TestEndlessPolicy: a policy without an end is refused before the first call.
func TestEndlessPolicy(t *testing.T) {
	for name, tt := range map[string]struct {
		p    tool.Retry
		e    tool.Effect
		want string // part of the remedy
	}{
		"for ever":       {tool.Retry{Times: -1}, tool.ReadOnly, "set Times to 1 to 1000"},
		"too often":      {tool.Retry{Times: 1001}, tool.ReadOnly, "set Times to 1 to 1000"},
		"a long pause":   {tool.Retry{Most: 48 * time.Hour}, tool.ReadOnly, "to at most 24h"},
		"a long total":   {tool.Retry{Total: 31 * 24 * time.Hour}, tool.ReadOnly, "set Total to at most 720h"},
		"shrinks":        {tool.Retry{Factor: 0.5}, tool.ReadOnly, "set Factor to 1 to 100"},
		"not repeatable": {tool.Retry{Times: 2}, tool.NonIdempotent, "declare another effect"},
	} {
		var w world
		calls := 0
		f := attempt(&calls, func(context.Context, int) error { return nil }, tt.e, tt.p)
		if err := forward(t, t.Context(), start(t, w.runtime(nil), f), run.Failed); calls != 0 || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %d calls, error %v", name, calls, err)
		}
		if _, err := tool.NewTable(tool.Func("x", "", func(context.Context, struct{}) (int, error) { return 0, nil }, &tool.FuncOptions{Effect: tt.e, Retry: &tt.p})); !errors.Is(err, tool.ErrSpec) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: a tool with it: %v", name, err)
		}
	}
}

// TestLongPauseIsAWait: a pause above five seconds ends the execution, so it holds neither
// a slot nor a sandbox, and only its timer lets the run continue.
func TestLongPauseIsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		calls := 0
		f := attempt(&calls, func(_ context.Context, n int) error { return map[bool]error{true: errDown}[n < 3] }, tool.ReadOnly, tool.Retry{First: time.Minute})
		for i, pause := range []time.Duration{time.Minute, time.Minute} { // of two by the factor, at most one
			rt := w.runtime(nil)
			change := resume
			if i == 0 {
				change = func(*journal.Task) {}
			}
			began := time.Now()
			forward(t, t.Context(), start(t, rt, f, change), run.Waiting)
			if calls != i+1 || time.Since(began) != 0 {
				t.Errorf("%d calls, and the execution takes %v", calls, time.Since(began))
			}
			r := must(engine.Replay(t.Context(), &rt.Runtime, flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return f }}, home, "r"))
			if r.Differs != "" || len(r.Steps) < i+1 {
				t.Errorf("a replay of the waiting run has %d steps and differs: %s", len(r.Steps), r.Differs)
			}
			tick := journal.Signal{To: home, Tick: true}
			time.Sleep(pause - time.Second)
			if err := rt.Runtime.Store.Apply(t.Context(), tick); !errors.Is(err, run.ErrState) {
				t.Errorf("before its time: %v", err)
			}
			time.Sleep(time.Second)
			check(t, rt.Runtime.Store.Apply(t.Context(), tick))
		}
		forward(t, t.Context(), start(t, w.runtime(nil), f, resume), run.Succeeded)
		want := []string{"0.try.1 1m0s error", "0.try.1.pause 0s expired", "0.try.2 1m0s error", "0.try.2.pause 0s expired", "0 0s "}
		if diff := cmp.Diff(want, w.tried(t)); calls != 3 || diff != "" {
			t.Errorf("%d calls:\n%s", calls, diff)
		}
	})
}

// TestCrashInPause: a process dies in a pause in place. The next one makes the next try,
// and no more of them than the policy has.
func TestCrashInPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		calls := 0
		f := attempt(&calls, func(context.Context, int) error { return errDown }, tool.ReadOnly, tool.Retry{Times: 4, First: 4 * time.Second, Factor: 1})
		for i := range 3 {
			ctx, cancel := context.WithCancelCause(t.Context())
			ex := start(t, w.runtime(nil), f, func(task *journal.Task) { task.Resume = i > 0 })
			done := make(chan struct{})
			go func() { forward(t, ctx, ex, run.Queued); close(done) }()
			time.Sleep(3 * time.Second) // in the first pause, then two seconds into it
			synctest.Wait()
			cancel(run.ErrShutdown)
			<-done
			if want := []int{1, 2, 3}[i]; calls != want {
				t.Errorf("after %d processes there are %d calls", i+1, calls)
			}
		}
		forward(t, t.Context(), start(t, w.runtime(nil), f, resume), run.Failed)
		if diff := cmp.Diff([]string{"0.try.1 4s error", "0.try.2 4s error", "0.try.3 4s error", "0 0s error"}, w.tried(t)); calls != 4 || diff != "" {
			t.Errorf("%d calls:\n%s", calls, diff)
		}
	})
}

// TestTimeoutOfTry: a try ends after a time without progress. With progress it may take
// longer.
func TestTimeoutOfTry(t *testing.T) {
	for _, progresses := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var w world
			calls := 0
			began := time.Now()
			f := attempt(&calls, func(ctx context.Context, _ int) error {
				for range 10 { // of 5 seconds each
					select {
					case <-time.After(5 * time.Second):
					case <-ctx.Done():
						return ctx.Err()
					}
					if progresses {
						flow.Progress(ctx, "works")
					}
				}
				return nil
			}, tool.ReadOnly, tool.Retry{Times: 2, Timeout: 7 * time.Second})
			ex := start(t, w.runtime(nil), f)
			if progresses {
				forward(t, t.Context(), ex, run.Succeeded)
				if took := time.Since(began); calls != 1 || took != 50*time.Second {
					t.Errorf("with progress: %d calls in %v", calls, took)
				}
				return
			}
			err := forward(t, t.Context(), ex, run.Failed)
			if took := time.Since(began); calls != 2 || took != 15*time.Second || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no progress for 7s") {
				t.Errorf("without progress: %d calls in %v: %v", calls, took, err)
			}
			if d := w.steps(t, home)[0]; d.Code != run.CodeTimeout || d.Elapsed != 7000 {
				t.Errorf("the first try is %+v", d)
			}
		})
	}
}

// TestSuccessHasNoTries: a step with a policy that succeeds at once has the record of one
// without.
func TestSuccessHasNoTries(t *testing.T) {
	var records []string
	for _, p := range [][]tool.Retry{nil, {{Times: 9, First: time.Hour, Timeout: time.Minute}}} {
		synctest.Test(t, func(t *testing.T) {
			var w world
			calls := 0
			forward(t, t.Context(), start(t, w.runtime(nil), attempt(&calls, func(context.Context, int) error { return nil }, tool.ReadOnly, p...)), run.Succeeded)
			records = append(records, fmt.Sprintf("%+v", facts[journal.StepCompleted](t, &w, journal.KindStepCompleted)))
		})
	}
	if records[0] != records[1] {
		t.Errorf("with a policy: %s\nwithout: %s", records[1], records[0])
	}
}

// looks is an agent that calls a tool once: f is the tool's
// work, by the number of its call.
func looks(ids *[]string, o tool.FuncOptions, f func(ctx context.Context, n int) (any, error)) (llm.Models, *flow.Agent) {
	m := model(func(r *llm.Request) *llm.Response {
		if last := r.Messages[len(r.Messages)-1]; last.Role == llm.Tool {
			return &llm.Response{Text: last.Text, Finish: llm.FinishStop}
		}
		return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: "a", Name: "look", Args: `{}`}}}
	})
	var hooked int
	look := tool.Func("look", "Looks.", func(ctx context.Context, _ struct{}) (any, error) {
		c, _ := tool.Current(ctx)
		*ids = append(*ids, c.ID)
		return f(ctx, len(*ids))
	}, &o)
	return m, &flow.Agent{Name: "a", Tools: []tool.Tool{look}, Hooks: flow.Hooks{AfterTool: func(_ context.Context, _ tool.Spec, _ json.RawMessage, r tool.Result) (tool.Result, error) {
		if hooked++; hooked > 1 {
			return r, errors.New("the hook is called for a try")
		}
		return r, nil
	}}}
}

// TestTriesOfTool: an error of a tool is tried again under one id. A body that the tool
// returns is an answer, whatever it reports.
func TestTriesOfTool(t *testing.T) {
	twice := func(_ context.Context, n int) (any, error) {
		if n < 3 {
			return nil, errDown
		}
		return "seen", nil
	}
	for name, tt := range map[string]struct {
		o     tool.FuncOptions
		f     func(context.Context, int) (any, error)
		calls int
		says  string
	}{
		"by default":     {tool.FuncOptions{Effect: tool.ReadOnly}, twice, 3, "seen"},
		"exhausted":      {tool.FuncOptions{Effect: tool.Idempotent, Retry: &tool.Retry{Times: 2}}, twice, 2, "the service is down"},
		"not repeatable": {tool.FuncOptions{}, twice, 1, "the service is down"},
		"selected":       {tool.FuncOptions{Retry: &tool.Retry{Times: 3, If: func(err error) bool { return errors.Is(err, errDown) }}}, twice, 3, "seen"},
		"permanent":      {tool.FuncOptions{Effect: tool.ReadOnly}, func(context.Context, int) (any, error) { return nil, tool.Permanent(errDown) }, 1, `error: the service is down`},
		"a failure": {tool.FuncOptions{Effect: tool.ReadOnly}, func(context.Context, int) (any, error) {
			return nil, &tool.Failure{Kind: tool.Unreachable, Message: "nobody home"}
		}, 1, "nobody home"},
		"a body": {tool.FuncOptions{Effect: tool.ReadOnly}, func(context.Context, int) (any, error) {
			return tool.Result{Body: map[string]string{"error_kind": "timeout"}, IsError: true}, nil
		}, 1, "timeout"},
		"a panic": {tool.FuncOptions{Effect: tool.ReadOnly}, func(context.Context, int) (any, error) { panic("oops") }, 1, "oops"},
		"too slow": {tool.FuncOptions{Effect: tool.ReadOnly, Retry: &tool.Retry{Timeout: time.Minute}}, func(ctx context.Context, n int) (any, error) {
			c, _ := tool.Current(ctx)
			for range 3 {
				if n > 1 {
					c.Progress("works")
				}
				select {
				case <-time.After(50 * time.Second):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return "slowly", nil
		}, 2, "slowly"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w world
				var ids []string
				m, agent := looks(&ids, tt.o, tt.f)
				_, ex, state, err := w.run1(t, m, agent, nil)
				if state != run.Succeeded || err != nil {
					t.Fatalf("the run is %s: %v", state, err)
				}
				if text := ex.Result().Text(); len(ids) != tt.calls || len(slices.Compact(ids)) != 1 || !strings.Contains(text, tt.says) {
					t.Errorf("%d calls %q, answer %q", len(ids), ids, text)
				}
			})
		})
	}
}

// TestLongPauseOfTool: a long pause of a tool's call is a wait of the run, and the call
// keeps its id.
func TestLongPauseOfTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		var ids []string
		m, agent := looks(&ids, tool.FuncOptions{Effect: tool.ReadOnly, Retry: &tool.Retry{First: time.Hour, Most: time.Hour}}, func(_ context.Context, n int) (any, error) {
			if n < 3 {
				return nil, errDown
			}
			return "seen", nil
		})
		f := func(ctx context.Context, s session.Session) (session.Session, error) {
			return agent.Forward(ctx, s.With(session.UserText("go")))
		}
		for i := range 2 {
			rt := w.runtime(m)
			forward(t, t.Context(), start(t, rt, f, func(task *journal.Task) { task.Resume = i > 0 }), run.Waiting)
			time.Sleep(time.Hour)
			check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Tick: true}))
		}
		forward(t, t.Context(), start(t, w.runtime(m), f, resume), run.Succeeded)
		want := []string{"0 0s ", "0.0.try.1 1h0m0s tool_execution_exception", "0.0.try.1.pause 0s expired", "0.0.try.2 1h0m0s tool_execution_exception", "0.0.try.2.pause 0s expired", "0.0 0s ", "1 0s "}
		if diff := cmp.Diff(want, w.tried(t)); diff != "" || len(ids) != 3 || len(slices.Compact(ids)) != 1 {
			t.Errorf("calls %q:\n%s", ids, diff)
		}
	})
}

// TestTryFindsFilesAsTheyWere: a try of a sandboxed tool that failed leaves no files for
// the next one.
func TestTryFindsFilesAsTheyWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		store := blob.NewMemory()
		tries := 0
		ex := noting(t, w.placedRuntime(t, rooms(false), store), "one", func() error {
			if tries++; tries < 3 {
				return errDown
			}
			return nil
		}, nil)
		forward(t, t.Context(), ex, run.Succeeded)
		if got := lines(t, store, ex.Result()); got != "one" || tries != 3 {
			t.Errorf("after %d tries the file has %q", tries, got)
		}
	})
}
