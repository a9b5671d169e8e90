package dossier_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// ledger is a log that processes use one after the other, with all of its commits.
type ledger struct {
	*world
	mu      sync.Mutex
	entries []commitlog.Entry
	starts  int
}

// all returns the commits so far.
func (l *ledger) all() []commitlog.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]commitlog.Entry(nil), l.entries...)
}

// process is a runtime over the log and the driver of its runs.
func (l *ledger) process() (*engine.Runtime, *inprocess.Driver) {
	l.starts++
	d := new(inprocess.Driver)
	values := journal.NewValues(&l.log)
	note := func(e commitlog.Entry) {
		l.mu.Lock()
		l.entries = append(l.entries, e)
		l.mu.Unlock()
		d.Committed(e)
	}
	var calls int64
	ask := func(context.Context, *llm.Request) (*llm.Response, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		calls++
		return &llm.Response{Text: "ok", Finish: llm.FinishStop, Usage: session.Usage{Input: 1 + calls%7, Output: calls % 3, MicroUSD: calls % 5}}, nil
	}
	return &engine.Runtime{
		Store:  journal.NewStore(&l.log, &journal.StoreOptions{Incarnation: fmt.Sprint("p", l.starts), Values: values, OnCommit: note}),
		Values: values, Models: asking(ask),
	}, d
}

type asking func(context.Context, *llm.Request) (*llm.Response, error)

func (f asking) Client(context.Context, llm.Provider) (llm.Client, error) { return f, nil }

func (f asking) Complete(ctx context.Context, r *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	return f(ctx, r)
}

// grown returns a random workflow: it asks models, waits, works, forks and fans out.
func grown(seed uint64, depth int) flow.Func {
	return func(ctx context.Context, s session.Session) (session.Session, error) {
		r := rand.New(rand.NewPCG(seed, uint64(depth)))
		var err error
		for i := range 1 + r.IntN(4) {
			part := grown(r.Uint64(), depth-1)
			pause := time.Duration(1+r.IntN(2000)) * time.Millisecond
			stubborn := r.IntN(3) == 0
			kind := r.IntN(7)
			if depth == 0 {
				kind %= 4
			}
			switch kind {
			case 0, 1:
				s, err = (&flow.Agent{Name: "a"}).Forward(ctx, s.With(session.UserText(fmt.Sprint(i))))
			case 2:
				err = flow.Sleep(ctx, pause)
			case 3:
				_, err = flow.Do(ctx, "work", func(ctx context.Context) (int, error) {
					if stubborn {
						time.Sleep(pause)
						return 1, nil
					}
					select {
					case <-time.After(pause):
						return 1, nil
					case <-ctx.Done():
						return 0, context.Cause(ctx)
					}
				}, tool.ReadOnly)
			case 4, 5:
				var child session.Session
				if child, err = flow.Fork(ctx, s); err == nil {
					_, err = part(ctx, child)
				}
			default:
				var bs []flow.Branch
				for j := range 2 + r.IntN(2) {
					bs = append(bs, flow.Branch{Name: fmt.Sprint("b", j), Workflow: grown(r.Uint64(), depth-1)})
				}
				o := []*flow.FanOutOptions{nil, {First: true}, {Quorum: 2}}[r.IntN(3)]
				var j *flow.Joined
				if j, err = flow.FanOut(ctx, s, bs, o); err == nil {
					s, err = flow.Merge(ctx, j, flow.Pick(-1))
				}
			}
			if err != nil {
				return s, err
			}
		}
		return s, nil
	}
}

// bill is the usage of a run in the logs: its own steps in all of them, and its branches.
type bill struct {
	own      journal.Spending
	branches []run.ID
	end      *journal.Ended
	last     *journal.Settled
}

func (l *ledger) bills() map[run.ID]*bill {
	all := map[run.ID]*bill{}
	of := func(id run.ID) *bill {
		if all[id] == nil {
			all[id] = &bill{}
		}
		return all[id]
	}
	done := map[string]bool{}
	for _, e := range l.all() {
		for _, f := range journal.Facts(e.Commit) {
			switch v := f.What.(type) {
			case journal.StepCompleted:
				if at := fmt.Sprint(v.Run, " ", v.Path); !done[at] {
					done[at] = true
					b := of(v.Run)
					b.own.Steps++
					if v.Kind != journal.StepGather {
						b.own.Usage = b.own.Usage.Add(v.Usage)
					}
				}
			case journal.Released:
				of(v.Run).own.Usage = of(v.Run).own.Usage.Add(v.Lost)
			case journal.FanOut:
				for _, b := range v.Branches {
					of(v.Run).branches = append(of(v.Run).branches, run.ID(b.Session))
				}
			case journal.Ended:
				if v.Workflow != "" {
					of(v.Run).end = &v
				}
				of(v.Run).own.Usage = of(v.Run).own.Usage.Add(v.Unrecorded)
			case journal.Settled:
				if v.N > 0 {
					of(v.Run).last = &v
				}
			}
		}
	}
	return all
}

// total returns the usage of a run and its branches, each counted once.
func total(all map[run.ID]*bill, id run.ID) (sum journal.Spending) {
	b := all[id]
	if b == nil {
		return sum
	}
	sum = b.own
	for _, branch := range b.branches {
		t := total(all, branch)
		sum.Usage, sum.Steps = sum.Usage.Add(t.Usage), sum.Steps+t.Steps
	}
	return sum
}

// agrees checks that all views of the usage of runs agree with the steps in the logs.
func (l *ledger) agrees(name string) {
	l.t.Helper()
	all, g := l.bills(), lineage.NewGraph()
	results := map[run.ID]*messages.Result{}
	for _, e := range l.all() {
		records, err := lineage.Derive(e)
		l.must(err)
		g.Add(records...)
		facts := journal.Facts(e.Commit)
		for _, r := range results {
			translate.Settle(r, facts)
		}
		for _, r := range translate.Results(e, facts) {
			results[r.Run] = &r
		}
	}
	for id, b := range all {
		want := total(all, id)
		if b.end == nil {
			l.t.Errorf("%s: run %s has not ended", name, id)
			continue
		}
		got := journal.Spending{Usage: b.end.Usage, Lost: b.end.Lost, Steps: b.end.Steps}
		if b.last != nil {
			got = b.last.Total
		}
		if got.Usage != want.Usage || got.Steps != want.Steps || got.Lost != (session.Usage{}) {
			l.t.Errorf("%s: run %s ended %s and used %+v; its log says %+v, at its end %+v", name, id, b.end.State, want, got, b.end.Usage)
		}
		r, err := g.Run(home.Tenant, id)
		l.must(err)
		if r.Usage != want.Usage {
			l.t.Errorf("%s: lineage says that run %s used %+v, want %+v", name, id, r.Usage, want.Usage)
		}
		var sum session.Usage
		for _, s := range g.SpentOn(home.Tenant, id) {
			sum = sum.Add(s.Usage)
		}
		if sum != want.Usage {
			l.t.Errorf("%s: the calls of run %s used %+v, want %+v", name, id, sum, want.Usage)
		}
		if results[id].Usage != want.Usage || results[id].Lost != (session.Usage{}) {
			l.t.Errorf("%s: the result of run %s says %+v, want %+v", name, id, results[id].Usage, want.Usage)
		}
	}
}

// told checks that the evidence of the run has the usage of the run and of its branches.
func (l *ledger) told(name string) {
	l.t.Helper()
	all := l.bills()
	e, err := dossier.Collect(l.t.Context(), &l.log, l.blobs, home, fixRun, nil)
	l.must(err)
	f, err := dossier.Read(e)
	l.must(err)
	if want := total(all, fixRun).Usage; f.Numbers.Tokens != want.Tokens() || f.Numbers.MicroUSD != want.MicroUSD {
		l.t.Errorf("%s: the dossier says %+v, want %+v", name, f.Numbers, want)
	}
	for _, b := range f.Branches {
		if want := total(all, run.ID(b.Session)).Usage; b.Tokens != want.Tokens() {
			l.t.Errorf("%s: the dossier says that branch %s used %d tokens, want %d", name, b.Name, b.Tokens, want.Tokens())
		}
	}
}

// play runs a workflow to one of its ends and returns when no work is left.
func (l *ledger) play(f flow.Func, end string, at time.Duration, budget run.Budget) {
	task := journal.Task{ID: fixRun, Workflow: "w", Session: home, Budget: budget}
	if end == "deadline" {
		task.Deadline = time.Now().Add(at)
	}
	reg := flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return f }}
	cancel := func(rt *engine.Runtime) {
		err := rt.Store.Apply(l.t.Context(), journal.Signal{To: home, Run: fixRun, Cancel: &journal.CancelRequested{ID: "stop", Reason: "enough"}})
		if err != nil && !errors.Is(err, run.ErrState) && !errors.Is(err, run.ErrUnknownRun) {
			l.t.Error(err)
		}
	}
	rt, d := l.process()
	ctx, stop := context.WithCancel(l.t.Context())
	var late sync.WaitGroup
	if end != "none" && end != "deadline" {
		late.Go(func() {
			time.Sleep(at)
			if end != "cancel" {
				stop()
				return
			}
			cancel(rt)
		})
	}
	_, _, err := d.Run(ctx, rt, reg, task)
	late.Wait()
	stop()
	if err != nil && end == "none" {
		l.t.Errorf("%v", err)
	}
	task.Resume = true
	for range 3 { // repeated work has no effect
		rt, d := l.process()
		switch end {
		case "crash":
			cancel(rt)
		case "review":
			l.giveUp(rt, cancel)
		}
		if _, _, err := d.Run(l.t.Context(), rt, reg, task, l.all()...); err != nil && end == "none" {
			l.t.Error(err)
		}
	}
}

// giveUp claims the run with code that stops for a review, which ends the run. A waiting run
// is cancelled instead, because no node claims it.
func (l *ledger) giveUp(rt *engine.Runtime, cancel func(*engine.Runtime)) {
	g, err := rt.Store.Claim(l.t.Context(), journal.Claim{Session: home, Home: home, Run: fixRun})
	if errors.Is(err, run.ErrUnknownRun) {
		return
	}
	l.must(err)
	if g.State.Terminal() {
		return
	}
	if g.State != run.Running {
		cancel(rt)
		return
	}
	review, err := journal.NewEvent(journal.KindReview, journal.Review{Attempt: g.Attempt, Code: run.CodeMismatch, Reason: "other code", Run: fixRun})
	l.must(err)
	_, err = rt.Store.Commit(l.t.Context(), journal.Batch{Session: home, Run: fixRun, Attempt: g.Attempt, Events: []session.Event{review}})
	l.must(err)
	l.must(rt.Store.Apply(l.t.Context(), journal.Signal{To: home, Run: fixRun, Resolve: &journal.Resolved{Decision: run.Fail, Reason: "enough"}}))
}

// TestForkOfWaitingRun checks that the run's usage includes the tokens of a fork, even if
// the run is cancelled while it waits.
func TestForkOfWaitingRun(t *testing.T) {
	for _, end := range []string{"cancel", "deadline", "crash", "review"} {
		synctest.Test(t, func(t *testing.T) {
			l := &ledger{world: newWorld(t)}
			l.play(func(ctx context.Context, s session.Session) (session.Session, error) {
				child, err := flow.Fork(ctx, s)
				if err != nil {
					return s, err
				}
				if _, err := (&flow.Agent{Name: "a"}).Forward(ctx, child.With(session.UserText("go"))); err != nil {
					return s, err
				}
				return s, flow.Sleep(ctx, time.Hour)
			}, end, time.Second, run.Budget{})
			if u := total(l.bills(), fixRun).Usage; u.Tokens() != 3 {
				t.Errorf("the model gave %+v", u)
			}
			l.agrees(end)
			l.told(end)
		})
	}
}

// TestSpendingAtEveryEnd checks that each log, lineage and result have the usage of the steps
// of random trees of forks and fan-outs, which end at random moments in every way.
func TestSpendingAtEveryEnd(t *testing.T) {
	trees := 120
	if testing.Short() {
		trees = 40
	}
	ends := []string{"none", "cancel", "deadline", "crash", "review"}
	settled := 0
	for i := range trees {
		r := rand.New(rand.NewPCG(uint64(i), 7))
		end := ends[i%len(ends)]
		at := time.Duration(1+r.IntN(6000)) * time.Millisecond
		budget := run.Budget{}
		if r.IntN(2) == 0 {
			budget.Tokens, budget.Steps = 1_000_000, 1_000_000
		}
		synctest.Test(t, func(t *testing.T) {
			l := &ledger{world: newWorld(t)}
			l.play(grown(r.Uint64(), 3), end, at, budget)
			name := fmt.Sprintf("tree %d, %s after %s", i, end, at)
			l.agrees(name)
			l.told(name)
			for _, b := range l.bills() {
				if b.last != nil {
					settled++
				}
			}
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("%d trees, %d runs settled after their end", trees, settled)
	if settled == 0 {
		t.Error("no run settled after its end: the trees do not show it")
	}
}
