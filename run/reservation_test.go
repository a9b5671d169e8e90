package run

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/session"
)

// gathering is a run that waits for a fan-out of four branches of 100 tokens and
// 10 steps each. A step takes 10 tokens here.
type gathering struct {
	t   *testing.T
	k   session.Key
	log *session.MemoryLog
	w   *StateMachine
	now time.Time
}

func newGathering(t *testing.T, warm bool) *gathering {
	g := &gathering{t: t, k: session.Key{Tenant: "t", ID: "s"}, log: &session.MemoryLog{}, now: time.UnixMilli(1_700_000_000_000)}
	var err error
	if g.w, err = Load(t.Context(), g.log, NewValues(g.log), g.k, "n"); err != nil {
		t.Fatal(err)
	}
	g.claim(&Task{ID: "r", Workflow: "w", Session: g.k, Budget: Budget{Tokens: 1000}})
	base, _ := g.w.Session().Link()
	out := FanOut{Ancestors: []Ancestor{{Run: "r", Session: "s"}}, Base: base, Budget: Budget{Tokens: 100, Steps: 10}, Path: "0", Root: "s", Run: "r", Warm: warm, Workflow: "w"}
	wait := Wait{Kind: WaitBranches, Need: 1, Path: "0.gather"}
	for i := range 4 {
		id := session.ID(fmt.Sprint("b", i))
		out.Branches, wait.Branches = append(out.Branches, FanOutBranch{Name: string(id), Session: id}), append(wait.Branches, id)
	}
	g.commit("0", event(KindFanOut, out), event(KindDone, StepCompleted{Attempt: 1, Kind: StepFanOut, Path: "0", Run: "r"}),
		event(KindWaiting, RunWaiting{Attempt: 1, For: []Wait{wait}, Run: "r"}))
	return g
}

func (g *gathering) append() {
	g.t.Helper()
	c, ok := g.w.Take()
	if !ok {
		return
	}
	at, err := g.log.Append(g.t.Context(), g.w.At(), c)
	if err != nil {
		g.t.Fatal(err)
	}
	g.w.Committed(at)
}

func (g *gathering) claim(task *Task) {
	g.t.Helper()
	if _, err := g.w.Claim(Claim{Session: g.k, Home: g.k, Run: "r", Task: task}, g.now); err != nil {
		g.t.Fatal(err)
	}
	g.append()
}

func (g *gathering) commit(p Path, events ...session.Event) {
	g.t.Helper()
	if _, err := g.w.Commit(Batch{Session: g.k, Run: "r", Attempt: g.w.RunState().Run("r").Attempt, Path: p, Events: events}, g.now); err != nil {
		g.t.Fatal(err)
	}
	g.append()
}

// report tells how a branch ended, and demands an answer.
func (g *gathering) report(id session.ID, s State, tokens int64, want error) {
	g.t.Helper()
	end := BranchEnd{Link: session.Link{Ref: session.Ref{Key: session.Key{Tenant: "t", ID: id}}, Seq: 1}, State: s, Steps: tokens / 10, Usage: session.Usage{Calls: 1, Input: tokens}}
	err := g.w.Signal(Signal{To: g.k, Run: "r", Received: &SignalReceived{ID: string(id), Kind: Report, Path: "0.gather", Branch: &end}}, g.now)
	g.append()
	if !errors.Is(err, want) || want == nil && err != nil {
		g.t.Errorf("the report of branch %s is answered with %v, want %v", id, err, want)
	}
}

// gather records the end of b0, and goes on without the others.
func (g *gathering) gather() {
	g.t.Helper()
	d := BranchOutcomes{Run: "r"}
	for _, id := range []session.ID{"b1", "b2", "b3"} {
		d.Branches = append(d.Branches, BranchOutcome{Session: id, State: session.ClosedCancelled, Reason: "not needed"})
	}
	g.commit("0.gather", event(KindDisposed, d), event(KindDone, StepCompleted{Attempt: 2, Kind: StepGather, Path: "0.gather", Run: "r", Steps: 1, Usage: session.Usage{Calls: 1, Input: 10}}))
}

// want demands what is set aside and what came late, of the writer and of one
// that folds the log or thaws a snapshot.
func (g *gathering) want(allotted, late int64) {
	g.t.Helper()
	snapshot, err := g.w.Snapshot()
	if err != nil {
		g.t.Fatal(err)
	}
	check := func(what string, w *StateMachine) {
		e := w.RunState().Run("r").Reservations()
		if e.Allotted().Tokens != allotted || e.Late.Tokens() != late {
			g.t.Errorf("%s: %d tokens are set aside and %d came late, want %d and %d", what, e.Allotted().Tokens, e.Late.Tokens(), allotted, late)
		}
		if e.Allotted().Steps != allotted/10 || e.LateSteps != late/10 {
			g.t.Errorf("%s: %d steps are set aside and %d came late, want %d and %d", what, e.Allotted().Steps, e.LateSteps, allotted/10, late/10)
		}
	}
	check("the writer", g.w)
	for _, what := range []string{"the log", "the snapshot"} {
		w, err := Load(g.t.Context(), g.log, NewValues(g.log), g.k, "reader")
		if err != nil {
			g.t.Fatal(err)
		}
		check(what, w)
		if err := snapshot.Save(g.t.Context(), g.log); err != nil {
			g.t.Fatal(err)
		}
	}
}

func (g *gathering) ended() *Ended { return g.w.RunState().Run("r").Ended }

// TestLateReport: what a branch used that the join was decided without is
// recorded when it tells, once; until then its part stays set aside.
func TestLateReport(t *testing.T) {
	g := newGathering(t, false)
	g.want(400, 0)
	g.report("b0", Succeeded, 10, nil)
	g.want(400, 0)
	g.claim(nil)
	g.report("b1", Cancelled, 20, nil) // after the run went on, before it gathers
	g.gather()
	g.want(200, 20)
	g.report("b0", Succeeded, 10, nil)
	g.report("b2", Cancelled, 30, ErrState)
	g.want(100, 50)
	g.report("b2", Cancelled, 30, ErrState)
	g.want(100, 50)
	if inbox := g.w.RunState().Run("r").Inbox(); len(inbox) > 0 {
		t.Errorf("nothing will take %+v out of the inbox", inbox)
	}
	g.commit("end", event(KindEnded, Ended{Attempt: 2, Run: "r", State: Succeeded, Steps: 3, Usage: session.Usage{Calls: 1, Input: 10}, Workflow: "w"}))
	if e := g.ended(); e.Usage != (session.Usage{Calls: 3, Input: 10 + 20 + 30 + 100}) || e.Lost != (session.Usage{Input: 100}) {
		t.Errorf("the run used %+v and lost %+v", e.Usage, e.Lost)
	}
	if e := g.ended(); e.Steps != 3+2+3+10 {
		t.Errorf("the run says that it took %d steps; 3 are its own and those of b0, 5 came late, 10 are set aside", e.Steps)
	}
	g.report("b3", Cancelled, 40, ErrState)
}

// TestHeldBranchesAreFree: of a fan-out that is warm-first only the branches
// that begin cost something.
func TestHeldBranchesAreFree(t *testing.T) {
	for _, spread := range []bool{false, true} {
		g := newGathering(t, true)
		rest := int64(0)
		if spread {
			rest = 300
			if err := g.w.Signal(Signal{To: g.k, Run: "r", Received: &SignalReceived{Kind: Warm, Path: "0.gather"}}, g.now); err != nil {
				t.Fatal(err)
			}
			g.append()
		}
		g.report("b0", Succeeded, 10, nil)
		g.claim(nil)
		g.gather()
		g.want(rest, 0)
	}
}

// TestEndBeforeGather: a run that ends while its branches work says what they
// used, as far as it knows, and what they may use.
func TestEndBeforeGather(t *testing.T) {
	for _, warm := range []bool{false, true} {
		g := newGathering(t, warm)
		used, bound := session.Usage{}, session.Usage{Input: 100}
		if !warm {
			used, bound = session.Usage{Calls: 1, Input: 20}, session.Usage{Input: 300}
			g.report("b1", Failed, 20, nil)
		}
		if err := g.w.Signal(Signal{To: g.k, Run: "r", Cancel: &CancelRequested{Reason: "no"}}, g.now); err != nil {
			t.Fatal(err)
		}
		g.append()
		if e := g.ended(); e.Lost != bound || e.Usage != used.Add(bound) {
			t.Errorf("warm %v: the run used %+v and lost %+v", warm, e.Usage, e.Lost)
		}
		if e := g.ended(); e.Steps != 1+used.Input/10+bound.Input/10 { // its own is the fan-out
			t.Errorf("warm %v: the run says that it took %d steps", warm, e.Steps)
		}
	}
}
