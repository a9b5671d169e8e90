package audit_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// The system itself writes the logs of these tests: processes that die at each of their
// commits, over one log. The audit sees only its input.

var home = session.Key{Tenant: session.DefaultTenant, ID: "home-1-0"}

// mortal is the log of a process that dies at its at-th append.
type mortal struct {
	commitlog.Log
	mu      sync.Mutex
	at, n   int
	stored  bool // the fatal append is stored without an acknowledgement
	dead    bool
	deathly context.CancelCauseFunc
}

var errDead = errors.New("the process is dead")

func (m *mortal) Append(ctx context.Context, at commitlog.Position, c commitlog.Commit) (commitlog.Position, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return commitlog.Position{}, errors.Join(errDead, session.ErrUnavailable)
	}
	if m.n++; m.n == m.at {
		m.dead = true
		defer m.deathly(errDead)
		if m.stored {
			if _, err := m.Log.Append(ctx, at, c); err != nil {
				return commitlog.Position{}, err
			}
		}
		return commitlog.Position{}, errors.Join(errDead, session.ErrUnavailable)
	}
	return m.Log.Append(ctx, at, c)
}

// fleet is the state that outlives processes: the log, and the records of the tools.
type fleet struct {
	limit   *run.Limit // of the workflow
	quota   *dayQuota  // nil without one
	log     commitlog.Memory
	mu      sync.Mutex
	witness bytes.Buffer
	next    int
	last    error // why the process stopped
	task    journal.Task
}

func (f *fleet) note(e audit.Execution) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.Time = time.Now()
	if err := json.NewEncoder(&f.witness).Encode(e); err != nil {
		panic(err)
	}
}

func (f *fleet) entries(t testing.TB) []commitlog.Entry {
	t.Helper()
	var all []commitlog.Entry
	for _, k := range f.log.Keys() {
		for e, err := range f.log.Read(context.WithoutCancel(t.Context()), k, commitlog.Position{}) {
			must.Do(t, err)
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b commitlog.Entry) int { return cmp.Compare(a.At.Token, b.At.Token) })
	return all
}

// messages yields the log as messages of a stream.
func (f *fleet) messages(t testing.TB) iter.Seq2[audit.Message, error] {
	return func(yield func(audit.Message, error) bool) {
		last := map[session.Key]uint64{}
		for _, e := range f.entries(t) {
			m := audit.Message{
				Stream: "EV_1_0", Seq: e.At.Token, Subject: fmt.Sprintf("rath.ev.1.0.%s.%s", e.Commit.Tenant, e.Commit.ID), Data: []byte(e.Raw),
				Header: map[string][]string{"Nats-Expected-Last-Subject-Sequence": {fmt.Sprint(last[e.Commit.Key])}},
			}
			last[e.Commit.Key] = e.At.Token
			if !yield(m, nil) {
				return
			}
		}
	}
}

// finds replaces a text in the log, also where it is JSON within a text, and checks that the
// auditor names the fault.
func (f *fleet) finds(t *testing.T, old, with, fault string) {
	t.Helper()
	quoted := func(s string) []byte { return []byte(strings.Trim(string(must.Get(json.Marshal(s))(t)), `"`)) }
	forged := false
	report := must.Get(audit.Run(t.Context(), func(yield func(audit.Message, error) bool) {
		for m, err := range f.messages(t) {
			changed := bytes.ReplaceAll(bytes.ReplaceAll(m.Data, []byte(old), []byte(with)), quoted(old), quoted(with))
			forged = forged || !bytes.Equal(changed, m.Data)
			m.Data = changed
			if !yield(m, err) {
				return
			}
		}
	}, &audit.Options{Schemas: schemas}))(t)
	if !forged || !strings.Contains(violations(report), fault) {
		t.Errorf("of %s in place of %s (forged: %v) the auditor found\n%s", with, old, forged, violations(report))
	}
}

// life is one process: it executes the run until the run has ended or waits for a review,
// or the process dies at an append.
func (f *fleet) life(t testing.TB, w flow.Workflow, at int, stored bool) (run.State, int) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	defer cancel(nil)
	log := &mortal{Log: &f.log, at: at, stored: stored, deathly: cancel}
	f.next++
	values := journal.NewValues(log)
	driver := &inprocess.Driver{}
	answers := sync.WaitGroup{}
	models, err := scripted.New(scripted.Echo(), nil)
	must.Do(t, err)
	rt := &engine.Runtime{Values: values, Models: models, Mint: commitlog.IDGenerator{Generation: 1, Partitions: 1}}
	if f.quota != nil {
		rt.Quota, driver.Quota = f.quota, f.quota.limit()
	}
	answer := func(e commitlog.Entry) {
		for _, ev := range e.Commit.Events {
			if c, err := journal.Decode[journal.Review](ev); ev.Kind == journal.KindReview && err == nil && c.Run != "r" { // of a branch
				answers.Go(func() {
					_ = rt.Store.Apply(ctx, journal.Signal{To: e.Commit.Key, Run: c.Run, Resolve: &journal.Resolved{Decision: run.Again, Reason: "it did not happen", By: "ann"}})
				})
			}
			v, err := journal.Decode[journal.RunWaiting](ev)
			for _, w := range v.For {
				if err == nil && ev.Kind == journal.KindRunWaiting && w.Kind == run.WaitQuota {
					answers.Go(func() { _ = rt.Store.Apply(ctx, f.quota.open(e.Commit.Tenant)) })
				}
				if err == nil && ev.Kind == journal.KindRunWaiting && w.Key == "k" { // an event
					answers.Go(func() {
						_ = rt.Store.Apply(ctx, journal.Signal{To: session.Key{Tenant: e.Commit.Tenant, ID: w.Log}, Event: &journal.EventSignal{
							Published: &journal.Published{By: "ann", ID: string(w.Path), Key: w.Key, Name: w.Name, Value: "1"},
						}})
					})
				}
			}
			if ev.Kind != journal.KindRunWaiting || err != nil || v.For[0].Kind != run.WaitApproval {
				continue
			}
			answers.Go(func() {
				_ = rt.Store.Apply(ctx, journal.Signal{To: e.Commit.Key, Run: v.Run, Received: &journal.SignalReceived{Kind: journal.Message, ID: "words", Text: "hurry"}})
				_ = rt.Store.Apply(ctx, journal.Signal{To: e.Commit.Key, Run: v.Run, Received: &journal.SignalReceived{Kind: journal.Approve, By: "ann", Path: v.For[0].Path}})
			})
		}
	}
	rt.Store = journal.NewStore(log, &journal.StoreOptions{Incarnation: fmt.Sprint("i", f.next), Values: values, OnCommit: func(e commitlog.Entry) {
		driver.Committed(e)
		answer(e)
	}})
	history := f.entries(t)
	for _, e := range history {
		answer(e)
	}
	task := f.task
	if task.ID == "" {
		task = journal.Task{ID: "r", Workflow: "w", Session: home, Budget: run.Budget{Tokens: 10_000, Steps: 1000}}
	}
	task.Resume = slices.ContainsFunc(history, func(e commitlog.Entry) bool { return e.Commit.Key == task.Session })
	g := flow.Registration{Name: "w", Revision: "1", Limit: f.limit, New: func() flow.Workflow { return w }}
	_, state, err := driver.Run(ctx, rt, g, task, history...)
	f.last = err
	answers.Wait()
	return state, log.n
}

// resolve is an operator's decision about an interrupted call of the main run.
func (f *fleet) resolve(t testing.TB) {
	t.Helper()
	f.next++
	store := journal.NewStore(&f.log, &journal.StoreOptions{Incarnation: fmt.Sprint("i", f.next)})
	must.Do(t, store.Apply(context.WithoutCancel(t.Context()), journal.Signal{To: home, Run: "r", Resolve: &journal.Resolved{Decision: run.Again, Reason: "it did not happen", By: "ann"}}))
}

// workflow returns a workflow with steps of every kind.
func (f *fleet) workflow() flow.Workflow {
	deploy := tool.Func("deploy", "", func(ctx context.Context, _ struct{}) (string, error) {
		c, _ := tool.Current(ctx)
		f.note(audit.Execution{Call: c.ID, Attempt: c.Attempt, Tool: "deploy", Effect: "non_idempotent"})
		return "deployed", nil
	}, nil)
	pay := func(ctx context.Context, name string) error {
		i, _ := flow.RunInfo(ctx)
		_, err := flow.Do(ctx, name, func(context.Context) (int, error) {
			f.note(audit.Execution{Run: string(i.Run), Step: string(i.Path), Attempt: i.Attempt, Tool: name, Effect: "non_idempotent"})
			return 1, nil
		}, tool.NonIdempotent)
		return err
	}
	flaky := func(ctx context.Context) error {
		_, err := flow.Do(ctx, "flaky", func(ctx context.Context) (int, error) {
			i, _ := flow.RunInfo(ctx)
			f.note(audit.Execution{Run: string(i.Run), Step: string(i.Path), Attempt: i.Attempt, Tool: "flaky", Effect: "non_idempotent"})
			if i.Try < 3 {
				return 0, errors.New("not yet")
			}
			return 1, nil
		}, tool.NonIdempotent, tool.Retry{Times: 3, First: time.Millisecond, If: func(error) bool { return true }})
		return err
	}
	say := func(text string) flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			if _, err := flow.Do(ctx, "say", func(context.Context) (string, error) { return text, nil }, tool.ReadOnly); err != nil {
				return s, err
			}
			return s.With(session.UserText(text)), pay(ctx, "pay in "+text)
		})
	}
	asks := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		if err := flow.Sleep(ctx, time.Millisecond); err != nil {
			return s, err
		}
		s, err := (&flow.Agent{Name: "echo"}).Forward(ctx, s.With(session.UserText("well?")))
		if err != nil {
			return s, err
		}
		return say("x").Forward(ctx, s)
	})
	// The other branches of one fan-out wait for a wait of the first, those of the other
	// fan-out for its end.
	warm := &flow.FanOutOptions{WarmFirst: true}
	nested := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "x", Workflow: asks}, {Name: "y", Workflow: say("y")}}, warm)
		if err != nil {
			return s, err
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	})
	broken := flow.Func(func(_ context.Context, s session.Session) (session.Session, error) { return s, errors.New("broken") })
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s = s.With(session.UserText("go"))
		s, _, err := flow.CallTool(ctx, s, deploy, struct{}{})
		if err != nil {
			return s, err
		}
		if s, _, err = flow.CallTool(ctx, s, flow.WorkflowTool("worker", "", say("called")), map[string]string{"input": "work"}); err != nil {
			return s, err
		}
		if err := pay(ctx, "pay"); err != nil {
			return s, err
		}
		if err := flaky(ctx); err != nil {
			return s, err
		}
		worse, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		if worse, err = say("worse").Forward(ctx, worse); err != nil {
			return s, err
		}
		if err := flow.Reject(ctx, worse, "it is worse"); err != nil {
			return s, err
		}
		if _, err := flow.Approve(ctx, "go on?", nil); err != nil {
			return s, err
		}
		better, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		if better, _, err = flow.CallTool(ctx, better, deploy, struct{}{}); err != nil {
			return s, err
		}
		full := &flow.Agent{Name: "full", MaxContext: 40} // which the session exceeds: it is compressed
		if better, err = full.Forward(ctx, better.With(session.UserText(strings.Repeat("more ", 20)))); err != nil {
			return s, err
		}
		if s, err = flow.Adopt(ctx, s, better, "it is better"); err != nil {
			return s, err
		}
		j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: say("a")}, {Name: "bad", Workflow: broken}, {Name: "deep", Workflow: nested}}, warm)
		if err != nil {
			return s, err
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	})
}

func (f *fleet) audited(t testing.TB) *audit.Report {
	t.Helper()
	r := must.Get(audit.Run(t.Context(), f.messages(t), &audit.Options{
		Schemas: schemas, Tools: []io.Reader{bytes.NewReader(f.witness.Bytes())},
	}))(t)
	return r
}

// lives are the executions of a workflow whose process dies at each of its appends, before
// and after the append is stored.
type lives struct {
	begin     func(t *testing.T) (*fleet, flow.Workflow) // until the process that dies
	ends      run.State
	runs      uint64 // zero for any number
	least     int    // appends; fewer are a workflow that does less than it should
	forgeries []forgery
	// whole checks the report on the process that did not die.
	whole func(t *testing.T, r *audit.Report)
}

// forgery is a change of the log, and a part of the violation that the auditor finds.
type forgery struct{ old, with, found string }

// audited audits a process that does not die, its forgeries, and each death.
func (l lives) audited(t *testing.T) {
	n := l.play(t, 0, false)
	if n < l.least {
		t.Fatalf("%d appends: the workflow does less than it should", n)
	}
	for at := 1; at <= n; at++ {
		for _, stored := range []bool{false, true} {
			l.play(t, at, stored)
		}
	}
}

func (l lives) play(t *testing.T, at int, stored bool) (appends int) {
	synctest.Test(t, func(t *testing.T) {
		f, w := l.begin(t)
		before := f.next
		state, n := f.life(t, w, at, stored)
		appends = n
		// The next process delivers the consequences of the last commits.
		for range 20 {
			if state.Terminal() && (at == 0 || f.next > before+1) {
				break
			}
			if state == run.NeedsReview {
				f.resolve(t)
			}
			state, _ = f.life(t, w, 0, false)
		}
		r := f.audited(t)
		if !r.OK() || state != l.ends || r.Open > 0 || l.runs > 0 && r.Runs != l.runs {
			t.Errorf("death at append %d (stored: %v): the run is %s, %d of %d open, %v\n%s", at, stored, state, r.Open, r.Runs, f.last, violations(r))
		}
		if at > 0 {
			return
		}
		if l.whole != nil {
			l.whole(t, r)
		}
		for _, forge := range l.forgeries {
			f.finds(t, forge.old, forge.with, forge.found)
		}
	})
	return appends
}

// fresh begins with an empty log.
func fresh(w flow.Func) func(*testing.T) (*fleet, flow.Workflow) {
	return func(*testing.T) (*fleet, flow.Workflow) { return &fleet{}, w }
}

// TestRecorded audits the system's records of an undisturbed run, and of runs whose
// process dies at each commit, before and after it is stored.
func TestRecorded(t *testing.T) {
	lives{
		begin: func(*testing.T) (*fleet, flow.Workflow) {
			f := &fleet{}
			return f, f.workflow()
		},
		ends: run.Succeeded, least: 40,
		whole: func(t *testing.T, r *audit.Report) {
			for _, c := range r.Counts {
				switch c.Invariant {
				case audit.Chain, audit.OneWriter, audit.OneEnd, audit.NoRepeat, audit.Waits, audit.Graph, audit.BranchResults, audit.Budgets:
					if c.Checked == 0 {
						t.Errorf("%s was never looked at", c.Invariant)
					}
				}
			}
		},
	}.audited(t)
}

// TestRecordedResumption audits a run that continues another one at a fan-out of which two
// branches failed and two outcomes stand, and whose process dies at each commit.
func TestRecordedResumption(t *testing.T) {
	lives{
		begin: func(t *testing.T) (*fleet, flow.Workflow) {
			f := &fleet{}
			away := true
			say := func(name string, fails bool) flow.Branch {
				return flow.Branch{Name: name, Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
					text, err := flow.Do(ctx, name, func(context.Context) (string, error) {
						if fails && away {
							return "", errors.New("away")
						}
						return name, nil
					}, tool.ReadOnly)
					return s.With(session.UserText(text)), err
				})}
			}
			w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				j, err := flow.FanOut(ctx, s.With(session.UserText("go")), []flow.Branch{say("a", false), say("b", true), say("c", false), say("d", true)}, nil)
				if err != nil {
					return s, err
				}
				for _, o := range j.Outcomes {
					if o.Err != nil {
						return s, o.Err
					}
				}
				return flow.Merge(ctx, j, flow.SinceAncestor())
			})
			if state, _ := f.life(t, w, 0, false); state != run.Failed {
				t.Fatalf("the first run is %s: %v", state, f.last)
			}
			away = false
			r, _, err := journal.NewValues(&f.log).ResumptionAt(t.Context(), home, "r", "")
			must.Do(t, err)
			f.next, f.task = 1, journal.Task{ID: "r-r1", Workflow: "w", Session: session.Key{Tenant: home.Tenant, ID: "again-1-0"}, Resumes: r}
			return f, w
		},
		ends: run.Succeeded, least: 8,
		forgeries: []forgery{{`,"name":"a"`, `,"name":"z"`, "want branch z of step 0 of a run that it continues"}},
	}.audited(t)
}
