package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// resumable executes workflows over one log, and resumes their runs.
type resumable struct {
	t      *testing.T
	log    commitlog.Memory
	values *journal.Values
	driver inprocess.Driver
	rt     engine.Runtime
	did    []string // the functions that were called
	fail   map[string]int
}

func newResumable(t *testing.T) *resumable {
	w := &resumable{t: t, fail: map[string]int{}}
	w.driver.InOrder = true
	w.values = journal.NewValues(&w.log)
	w.rt = engine.Runtime{Values: w.values, Store: journal.NewStore(&w.log, &journal.StoreOptions{Values: w.values, OnCommit: w.driver.Committed})}
	return w
}

// do is a step that appends its name to the session. It fails as often as its count in fail.
func (w *resumable) do(ctx context.Context, s session.Session, name string) (session.Session, error) {
	text, err := flow.Do(ctx, name, func(context.Context) (string, error) {
		w.did = append(w.did, name)
		if w.fail[name]--; w.fail[name] >= 0 {
			return "", flow.Permanent(errors.New(name + " is away"))
		}
		return "did " + name, nil
	}, tool.Idempotent)
	if err != nil {
		return s, err
	}
	return s.With(session.UserText(text)), nil
}

// run executes a task, and returns its session and the functions that it called.
func (w *resumable) run(id run.ID, f flow.Func, want run.State, change ...func(*journal.Task)) (session.Session, string) {
	w.t.Helper()
	task := journal.Task{ID: id, Workflow: "w", Session: session.Key{Tenant: session.DefaultTenant, ID: session.ID("s-" + id)}}
	for _, c := range change {
		c(&task)
	}
	w.did = nil
	ex, state, err := w.driver.Run(w.t.Context(), &w.rt, flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return f }}, task)
	if state != want {
		w.t.Fatalf("run %s is %s, want %s: %v", id, state, want, err)
	}
	did := strings.Join(w.did, " ")
	r, err := engine.Replay(w.t.Context(), &w.rt, flow.Registration{Name: "w", New: func() flow.Workflow { return f }}, task.Session, id)
	if err != nil || state.Terminal() && !r.Matches() {
		w.t.Errorf("a replay of run %s: %v: %s", id, err, r.Differs)
	}
	return ex.Result(), did
}

// resumes makes a task continue a run at a step; "" is the one that failed.
func (w *resumable) resumes(id run.ID, step run.Path) func(*journal.Task) {
	w.t.Helper()
	r, _, err := w.values.ResumptionAt(w.t.Context(), session.Key{Tenant: session.DefaultTenant, ID: session.ID("s-" + id)}, id, step)
	if err != nil {
		w.t.Fatal(err)
	}
	return func(t *journal.Task) { t.Resumes = r }
}

func (w *resumable) pipeline(names ...string) flow.Func {
	return func(ctx context.Context, s session.Session) (_ session.Session, err error) {
		for _, name := range names {
			if s, err = w.do(ctx, s, name); err != nil {
				return s, err
			}
		}
		return s, nil
	}
}

// TestResumeAtFailedStep: a run that resumes another one calls only the functions from the
// failed step on, and has the session that the ended run had there. The ended run stays.
func TestResumeAtFailedStep(t *testing.T) {
	w := newResumable(t)
	w.fail["e"] = 1
	f := w.pipeline("a", "b", "c", "d", "e", "f")
	_, did := w.run("one", f, run.Failed)
	if did != "a b c d e" {
		t.Fatalf("the failed run called %s", did)
	}
	before, err := w.log.Last(t.Context(), session.Key{Tenant: session.DefaultTenant, ID: "s-one"})
	check(t, err)
	s, did := w.run("two", f, run.Succeeded, w.resumes("one", ""))
	if did != "e f" || !slices.Equal(texts(s), []string{"did a", "did b", "did c", "did d", "did e", "did f"}) {
		t.Errorf("the resumed run called %s, and has %q", did, texts(s))
	}
	if s.Key().ID != "s-two" {
		t.Errorf("the result is session %s", s.Key())
	}
	after, err := w.log.Last(t.Context(), session.Key{Tenant: session.DefaultTenant, ID: "s-one"})
	check(t, err)
	if after.At != before.At {
		t.Errorf("the ended run has commit %d, it had %d", after.At.Seq, before.At.Seq)
	}
}

// TestResumeEarlier: the caller chooses the step.
func TestResumeEarlier(t *testing.T) {
	w := newResumable(t)
	w.fail["c"] = 1
	f := w.pipeline("a", "b", "c")
	w.run("one", f, run.Failed)
	if _, did := w.run("two", f, run.Succeeded, w.resumes("one", "1")); did != "b c" {
		t.Errorf("it called %s", did)
	}
}

// TestResumeResumed: a run that resumed another one, and failed, is resumed itself; at a
// step that it has not made the first of them is.
func TestResumeResumed(t *testing.T) {
	w := newResumable(t)
	w.fail["b"], w.fail["d"] = 1, 3
	f := w.pipeline("a", "b", "c", "d", "e")
	w.run("one", f, run.Failed)
	w.run("two", f, run.Failed, w.resumes("one", ""))
	if _, did := w.run("three", f, run.Failed, w.resumes("two", "")); did != "d" {
		t.Errorf("the third run called %s", did)
	}
	_, did := w.run("four", f, run.Failed, w.resumes("three", "0"))
	if did != "a b c d" {
		t.Errorf("the fourth run called %s", did)
	}
	s, did := w.run("five", f, run.Succeeded, w.resumes("three", ""))
	if did != "d e" || len(texts(s)) != 5 {
		t.Errorf("the fifth run called %s, and has %q", did, texts(s))
	}
}

// TestResumedIsKilled: a later attempt of a run that resumes another one replays the
// records of both.
func TestResumedIsKilled(t *testing.T) {
	w := newResumable(t)
	w.fail["b"] = 1
	f := w.pipeline("a", "b", "c")
	w.run("one", f, run.Failed)
	resumes := w.resumes("one", "")
	ctx, cancel := context.WithCancelCause(t.Context())
	task := journal.Task{ID: "two", Workflow: "w", Session: session.Key{Tenant: session.DefaultTenant, ID: "s-two"}}
	resumes(&task)
	ex := must(w.rt.Begin(t.Context(), flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(c context.Context, s session.Session) (session.Session, error) {
			s, err := w.pipeline("a", "b")(c, s)
			if err == nil {
				cancel(run.ErrShutdown)
				s, err = w.do(c, s, "c")
			}
			return s, err
		})
	}}, task))
	if state, err := ex.Forward(ctx); state != run.Queued {
		t.Fatalf("it is %s: %v", state, err)
	}
	s, did := w.run("two", f, run.Succeeded, func(task *journal.Task) { task.Resume = true })
	if did != "c" || len(texts(s)) != 3 {
		t.Errorf("the second attempt called %s, and has %q", did, texts(s))
	}
}

// TestResumeForked: sessions that the ended run forked before the step are read, and
// extended as forks of the run that resumes it.
func TestResumeForked(t *testing.T) {
	w := newResumable(t)
	w.fail["c"] = 1
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := w.do(ctx, s, "a")
		if err != nil {
			return s, err
		}
		try, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		if try, err = w.do(ctx, try, "b"); err != nil {
			return s, err
		}
		if try, err = w.do(ctx, try, "c"); err != nil {
			return s, err
		}
		return flow.Adopt(ctx, s, try, "it is good")
	}
	w.run("one", f, run.Failed)
	s, did := w.run("two", f, run.Succeeded, w.resumes("one", ""))
	if did != "c" || !slices.Equal(texts(s), []string{"did a", "did b", "did c"}) {
		t.Errorf("it called %s, and has %q", did, texts(s))
	}
}

// TestResumeAfterFanOut: the outcomes of branches that a fan-out gathered before the step
// stand, and can be merged.
func TestResumeAfterFanOut(t *testing.T) {
	w := newResumable(t)
	w.fail["between"] = 1
	f := w.fanned("left", "right")
	w.run("one", f, run.Failed)
	s, did := w.run("two", f, run.Succeeded, w.resumes("one", ""))
	if want := []string{"did before", "did left", "did right", "did between", "did after"}; did != "between after" || !cmp.Equal(texts(s), want) {
		t.Errorf("it called %s, and has %q", did, texts(s))
	}
}

// TestResumeFanOut: at a fan-out of which a branch failed, the outcomes of the branches that
// succeeded stand, and the others open again; a second time, too.
func TestResumeFanOut(t *testing.T) {
	w := newResumable(t)
	w.fail["right"] = 2
	f := w.fanned("left", "right", "up")
	w.run("one", f, run.Failed)
	if _, did := w.run("two", f, run.Failed, w.resumes("one", "")); did != "right" {
		t.Errorf("it called %s", did)
	}
	s, did := w.run("three", f, run.Succeeded, w.resumes("two", ""))
	want := []string{"did before", "did left", "did right", "did up", "did between", "did after"}
	if did != "right between after" || !cmp.Equal(texts(s), want) {
		t.Errorf("it called %s, and has %q", did, texts(s))
	}
	if s, did := w.run("four", f, run.Succeeded, w.resumes("one", "0")); !strings.HasPrefix(did, "before ") || len(w.did) != 6 || !cmp.Equal(texts(s), want) {
		t.Errorf("from the first step on it called %s, and has %q", did, texts(s))
	}
}

// TestResumeFanOutPaid: a call in a branch whose outcome stands does not happen again, so it
// does not prevent that the fan-out is resumed.
func TestResumeFanOutPaid(t *testing.T) {
	w := newResumable(t)
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		pay := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Do(ctx, "pay", func(context.Context) (int, error) { w.did = append(w.did, "pay"); return 1, nil }, tool.NonIdempotent)
			return s, err
		})
		j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "pay", Workflow: pay}, {Name: "b", Workflow: w.pipeline("b")}}, nil)
		if err != nil {
			return s, err
		}
		for _, o := range j.Outcomes {
			if o.Err != nil {
				return s, o.Err
			}
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	}
	w.fail["b"] = 1
	w.run("one", f, run.Failed)
	if _, did := w.run("two", f, run.Succeeded, w.resumes("one", "")); did != "b" {
		t.Errorf("it called %s", did)
	}
}

func (w *resumable) fanned(names ...string) flow.Func {
	return func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := w.do(ctx, s, "before")
		if err != nil {
			return s, err
		}
		var bs []flow.Branch
		for _, n := range names {
			bs = append(bs, flow.Branch{Name: n, Workflow: w.pipeline(n)})
		}
		j, err := flow.FanOut(ctx, s, bs, nil)
		if err != nil {
			return s, err
		}
		for _, o := range j.Outcomes {
			if o.Err != nil {
				return s, o.Err
			}
		}
		if _, err = w.do(ctx, session.Session{}, "between"); err != nil {
			return s, err
		}
		if s, err = flow.Merge(ctx, j, flow.SinceAncestor()); err != nil {
			return s, err
		}
		return w.do(ctx, s.With(session.UserText("did between")), "after")
	}
}

// TestResumeBeforeTheResumption: at a step before its own, a run that resumed another one is
// not resumed if it has made a call that must not happen twice.
func TestResumeBeforeTheResumption(t *testing.T) {
	w := newResumable(t)
	w.fail["b"], w.fail["c"] = 1, 1
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := w.pipeline("a", "b")(ctx, s)
		if err != nil {
			return s, err
		}
		if _, err := flow.Do(ctx, "pay", func(context.Context) (int, error) { return 1, nil }, tool.NonIdempotent); err != nil {
			return s, err
		}
		return w.do(ctx, s, "c")
	}
	w.run("one", f, run.Failed)
	w.run("two", f, run.Failed, w.resumes("one", ""))
	_, _, err := w.values.ResumptionAt(t.Context(), session.Key{Tenant: session.DefaultTenant, ID: "s-two"}, "two", "0")
	if !errors.Is(err, run.ErrState) || !strings.Contains(err.Error(), `"pay" at step 2 has taken effect`) {
		t.Errorf("at step 0: %v", err)
	}
	if _, did := w.run("three", f, run.Succeeded, w.resumes("two", "3")); did != "c" {
		t.Errorf("at step 3 it called %s", did)
	}
}

// TestResumeTooOften: the number of runs that continue each other is bounded.
func TestResumeTooOften(t *testing.T) {
	w := newResumable(t)
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint("s", i))
		w.fail[names[i]] = 1
	}
	f := w.pipeline(names...)
	w.run("r0", f, run.Failed)
	for i := range names {
		id := run.ID(fmt.Sprint("r", i))
		_, _, err := w.values.ResumptionAt(t.Context(), session.Key{Tenant: session.DefaultTenant, ID: session.ID("s-" + id)}, id, "")
		if errors.Is(err, run.ErrMalformed) && i == 32 {
			return
		}
		if _, did := w.run(run.ID(fmt.Sprint("r", i+1)), f, run.Failed, w.resumes(id, "")); did != names[i]+" "+names[i+1] {
			t.Fatalf("run %d called %s", i+1, did)
		}
	}
	t.Error("a hundred runs continue each other")
}

// TestResumeRefused: the reasons why a run cannot be resumed.
func TestResumeRefused(t *testing.T) {
	w := newResumable(t)
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		if _, err := flow.Do(ctx, "pay", func(context.Context) (int, error) { return 1, nil }, tool.NonIdempotent); err != nil {
			return s, err
		}
		return w.do(ctx, s, "b")
	}
	w.fail["b"] = 1
	w.run("one", f, run.Failed)
	w.run("good", w.pipeline("a"), run.Succeeded)
	for name, c := range map[string]struct {
		id   run.ID
		step run.Path
		err  error
		says string
	}{
		"the call before it was done": {"one", "0", run.ErrState, `do "pay" at step 0 has taken effect`},
		"a part of a step":            {"one", "0.fork", run.ErrMalformed, "such as 1"},
		"it succeeded":                {"good", "", run.ErrState, "succeeded"},
		"no run":                      {"none", "", run.ErrUnknownRun, ""},
	} {
		_, _, err := w.values.ResumptionAt(t.Context(), session.Key{Tenant: session.DefaultTenant, ID: session.ID("s-" + c.id)}, c.id, c.step)
		if !errors.Is(err, c.err) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestResumeApproved: a call that was approved and is done is not repeated, and a call that
// was cut off by a cancel waits for a decision.
func TestResumeApproved(t *testing.T) {
	w := newResumable(t)
	deployed := 0
	deploy := tool.Func("deploy", "Deploys.", func(context.Context, struct{}) (string, error) { deployed++; return "deployed", nil }, &tool.FuncOptions{Effect: tool.NonIdempotent})
	away := true
	w.rt.Models = refusing(func(r *llm.Request) (*llm.Response, error) {
		if r.Messages[len(r.Messages)-1].Role == llm.User {
			return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: "a", Name: "deploy", Args: `{}`}}}, nil
		}
		if away {
			return nil, &llm.Error{Code: llm.CodeInvalidRequest, Message: "away"}
		}
		return &llm.Response{Text: "it is deployed", Finish: llm.FinishStop}, nil
	})
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := w.do(ctx, s.With(session.UserText("Deploy.")), "a")
		if err != nil {
			return s, err
		}
		return (&flow.Agent{Name: "ops", Tools: []tool.Tool{deploy}}).Forward(ctx, s)
	}
	w.run("one", f, run.Failed)
	away = false
	s, did := w.run("two", f, run.Succeeded, w.resumes("one", ""))
	if did != "" || deployed != 1 || s.Text() != "it is deployed" {
		t.Errorf("it called %q, deployed %d times, and says %q", did, deployed, s.Text())
	}
}

// TestResumeCutOff: a call that must not happen twice, and that a cancel cut off, waits for
// a decision in the run that resumes.
func TestResumeCutOff(t *testing.T) {
	w := newResumable(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	paid := 0
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := w.do(ctx, s, "a")
		if err != nil {
			return s, err
		}
		_, err = flow.Do(ctx, "pay", func(context.Context) (int, error) {
			if paid++; paid == 1 {
				cancel(run.ErrShutdown)
				return 0, run.ErrShutdown
			}
			return 1, nil
		}, tool.NonIdempotent)
		return s, err
	}
	g := flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return flow.Func(f) }}
	k := session.Key{Tenant: session.DefaultTenant, ID: "s-one"}
	ex := must(w.rt.Begin(t.Context(), g, journal.Task{ID: "one", Workflow: "w", Session: k}))
	if state, err := ex.Forward(ctx); state != run.Queued {
		t.Fatalf("it is %s: %v", state, err)
	}
	check(t, w.rt.Store.Apply(t.Context(), journal.Signal{To: k, Run: "one", Cancel: &journal.CancelRequested{By: "ana", Reason: "enough"}}))
	w.run("two", f, run.NeedsReview, w.resumes("one", ""))
	if paid != 1 {
		t.Errorf("it paid %d times", paid)
	}
	two := session.Key{Tenant: session.DefaultTenant, ID: "s-two"}
	check(t, w.rt.Store.Apply(t.Context(), journal.Signal{To: two, Run: "two", Resolve: &journal.Resolved{By: "ana", Decision: run.Again, Path: "1", Run: "two"}}))
	if _, did := w.run("two", f, run.Succeeded, func(task *journal.Task) { task.Resume = true }); did != "" || paid != 2 {
		t.Errorf("after the decision it called %q, and paid %d times", did, paid)
	}
}

// TestResumeOtherCode: code that does not make the steps before the one to resume at stops
// for a review.
func TestResumeOtherCode(t *testing.T) {
	w := newResumable(t)
	w.fail["c"] = 1
	w.run("one", w.pipeline("a", "b", "c"), run.Failed)
	w.run("two", w.pipeline("a", "other", "c"), run.NeedsReview, w.resumes("one", ""))
	w.run("three", w.pipeline("a", "b", "other"), run.Succeeded, w.resumes("one", ""))
}

// refusing answers requests to a model, or fails them.
type refusing func(r *llm.Request) (*llm.Response, error)

func (a refusing) Complete(_ context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	return a(r)
}

func (a refusing) Client(context.Context, llm.Provider) (llm.Client, error) { return a, nil }

// TestWaysOn: the ways on of a failed run have the usage that stands and that is paid again,
// with branches, and the calls that a rerun would repeat.
func TestWaysOn(t *testing.T) {
	w := newResumable(t)
	w.fail["right"] = 1
	w.rt.Models = must(scripted.New(scripted.Echo(), nil))
	agent := func(name string) flow.Branch {
		return flow.Branch{Name: name, Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := (&flow.Agent{Name: name}).Forward(ctx, s.With(session.UserText(name)))
			if err != nil {
				return s, err
			}
			return w.do(ctx, s, name)
		})}
	}
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		if _, err := flow.Do(ctx, "pay", func(context.Context) (int, error) { return 1, nil }, tool.NonIdempotent); err != nil {
			return s, err
		}
		s, err := (&flow.Agent{Name: "plan"}).Forward(ctx, s.With(session.UserText("plan")))
		if err != nil {
			return s, err
		}
		j, err := flow.FanOut(ctx, s, []flow.Branch{agent("left"), agent("right"), agent("up")}, nil)
		if err != nil {
			return s, err
		}
		for _, o := range j.Outcomes {
			if o.Err != nil {
				return s, o.Err
			}
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	}
	w.run("one", f, run.Failed)
	ways, err := w.values.WaysOn(t.Context(), session.Key{Tenant: session.DefaultTenant, ID: "s-one"}, "one")
	check(t, err)
	if ways.Refused != nil || ways.Kept.Calls != 3 || ways.Again.Calls != 1 || len(ways.Done) != 1 || ways.Done[0].Name != "pay" {
		t.Errorf("the ways on are %+v", ways)
	}
	w.run("two", f, run.Succeeded, w.resumes("one", ways.Step))
	if _, err := w.values.WaysOn(t.Context(), session.Key{Tenant: session.DefaultTenant, ID: "s-none"}, "none"); !errors.Is(err, session.ErrNotFound) && !errors.Is(err, run.ErrUnknownRun) {
		t.Errorf("of no run: %v", err)
	}
}
