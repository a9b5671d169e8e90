package protection_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// schedule is a sequence of events that one protection must survive. The order of the
// schedule alone decides the damage without the protection: no chance is involved.
type schedule struct {
	protection string
	play       func(*testing.T) *evidence
	invariant  string // that is broken without the protection
	text       string // of the violation
}

var schedules = []schedule{
	{"append_cas", zombieAppends, audit.OneWriter, "two writers"},
	{"attempt_fence", supersededAttempt, audit.OneWriter, "nothing but of attempt 2"},
	{"claim_before_read", outcomeBeforeClaim, audit.ReadClaim, "not to run again, attempt 1 recorded it"},
	{"dispatch_seen", staleDispatch, audit.OneWriter, "a dispatch that saw attempt 2"},
	{"event_cursor", oneEventForTwoWaits, audit.Events, "a wait at step 2 for event 1"},
	{"intent_expiry", slowIntent, audit.NoRepeat, "to begin before its intent expires"},
	{"limit_holders", twoOfOneKey, audit.Limits, "at most 1 runs that hold a grant"},
	{"openset_tail", endBetweenRelays, audit.Results, "result"},
	{"persist_before_reply", deathBeforeAppend, audit.Acknowledged, "of which the submit was acknowledged"},
	{"round", powerCut, audit.Acknowledged, "of which the submit was acknowledged"},
	{"wake_numbers", staleResume, audit.Waits, "before a waiting run is claimed"},
}

// TestFound plays the schedules. With all protections none breaks a promise;
// in a build that leaves one out, its schedule does, and the auditor names it.
func TestFound(t *testing.T) {
	off := protection.Off()
	for _, s := range schedules {
		if len(off) > 0 && !slices.Contains(off, s.protection) {
			continue
		}
		t.Run(s.protection, func(t *testing.T) {
			var r *audit.Report
			synctest.Test(t, func(t *testing.T) { r = s.play(t).audited(t) })
			found := slices.ContainsFunc(r.Violations, func(v audit.Violation) bool {
				return v.Invariant == s.invariant && strings.Contains(v.String(), s.text)
			})
			for _, v := range r.Violations {
				t.Log(v)
			}
			switch {
			case len(off) == 0 && !r.OK():
				t.Error("a promise was broken with all protections on")
			case len(off) > 0 && !found:
				t.Errorf("without %s nothing broke %s (%q)", s.protection, s.invariant, s.text)
			}
		})
	}
}

// TestEveryProtection: no protection that can be left out is without a
// schedule.
func TestEveryProtection(t *testing.T) {
	names := protection.Names()
	if len(names) != len(schedules) {
		t.Errorf("%d protections, %d schedules", len(names), len(schedules))
	}
	for _, name := range names {
		if !slices.ContainsFunc(schedules, func(s schedule) bool { return s.protection == name }) {
			t.Errorf("no schedule for %s", name)
		}
	}
}

// evidence is the input of an auditor.
type evidence struct {
	log      commitlog.Memory
	messages []audit.Message // instead of log
	mu       sync.Mutex
	tools    bytes.Buffer
	told     bytes.Buffer
}

func (e *evidence) executed(x audit.Execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x.Time = time.Now()
	if err := json.NewEncoder(&e.tools).Encode(x); err != nil {
		panic(err)
	}
}

func (e *evidence) tell(x audit.Told) {
	if err := json.NewEncoder(&e.told).Encode(x); err != nil {
		panic(err)
	}
}

// stored yields the log in memory as streams hold it.
func (e *evidence) stored(t *testing.T) iter.Seq2[audit.Message, error] {
	all := e.messages
	if all == nil {
		var entries []commitlog.Entry
		for _, k := range e.log.Keys() {
			for entry, err := range e.log.Read(t.Context(), k, commitlog.Position{}) {
				must.Do(t, err)
				entries = append(entries, entry)
			}
		}
		slices.SortFunc(entries, func(a, b commitlog.Entry) int { return cmp.Compare(a.At.Token, b.At.Token) })
		last := map[session.Key]uint64{}
		for _, en := range entries {
			k := en.Commit.Key
			all = append(all, audit.Message{
				Stream: "EV_1_0", Seq: en.At.Token, Subject: fmt.Sprintf("rath.ev.1.0.%s.%s", k.Tenant, k.ID), Data: []byte(en.Raw),
				Header: map[string][]string{"Nats-Expected-Last-Subject-Sequence": {fmt.Sprint(last[k])}},
			})
			last[k] = en.At.Token
		}
	}
	return func(yield func(audit.Message, error) bool) {
		for _, m := range all {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func (e *evidence) audited(t *testing.T) *audit.Report {
	t.Helper()
	schemas := must.Get(audit.ReadSchemas(os.DirFS("../../../messages/schema")))(t)
	r := must.Get(audit.Run(t.Context(), e.stored(t), &audit.Options{
		Schemas: schemas, Tools: []io.Reader{&e.tools}, Clients: []io.Reader{&e.told},
	}))(t)
	return r
}

var home = session.Key{Tenant: session.DefaultTenant, ID: "s1-1-0"}

func task() *journal.Task { return &journal.Task{ID: "r1", Workflow: "w", Session: home} }

// done is a step's record as a batch of an attempt.
func done(t *testing.T, attempt uint64, path run.Path) journal.Batch {
	t.Helper()
	e := must.Get(journal.NewEvent(journal.KindStepCompleted, journal.StepCompleted{Attempt: attempt, Input: "i", Kind: journal.StepDo, Name: "n", Path: path, Run: "r1", Effect: "read_only"}))(t)
	return journal.Batch{Session: home, Run: "r1", Attempt: attempt, Path: path, Events: []session.Event{e}}
}

func ended(t *testing.T, attempt uint64) journal.Batch {
	t.Helper()
	e := must.Get(journal.NewEvent(journal.KindEnded, journal.Ended{Attempt: attempt, Run: "r1", State: run.Succeeded, Workflow: "w"}))(t)
	return journal.Batch{Session: home, Run: "r1", Attempt: attempt, Path: "end", Events: []session.Event{e}}
}

// mustFence fails unless err reports that another process took over; without the
// protection there may be no error.
func mustFence(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil && len(protection.Off()) == 0 {
		t.Errorf("%s went through", what)
	}
}

// zombieAppends: a writer continues after another one took the session.
func zombieAppends(t *testing.T) *evidence {
	srv := natstest.Start(t, nil)
	user, password := srv.Node()
	conn, err := api.Connect(t.Context(), &streams.Options{Options: conn.Options{Dialer: srv.Dial, User: user, Password: password}, Level: streams.Lazy, Partitions: 1})
	must.Do(t, err)
	defer conn.Conn.Close()
	must.Do(t, conn.Streams.Provision(t.Context()))
	zombie := journal.NewStore(conn.Logs.Log(), &journal.StoreOptions{Incarnation: "i1"})
	must.Get(zombie.Claim(t.Context(), journal.Claim{Session: home, Home: home, Run: "r1", Task: task()}))(t)
	next := journal.NewStore(conn.Logs.Log(), &journal.StoreOptions{Incarnation: "i2"})
	must.Get(next.Claim(t.Context(), journal.Claim{Session: home, Home: home, Run: "r1"}))(t)
	stale, cancel := context.WithTimeout(t.Context(), time.Minute)
	_, err = zombie.Commit(stale, done(t, 1, "0"))
	cancel()
	mustFence(t, "a zombie's append", err)
	_, _ = next.Commit(t.Context(), ended(t, 2)) // it may fail after the zombie's append
	e := &evidence{}
	err = conn.Logs.Dump(t.Context(), func(m eventlog.Stored) error {
		if strings.HasPrefix(m.Stream, "EV_") { // there is no relay here
			e.messages = append(e.messages, audit.Message(m))
		}
		return nil
	})
	must.Do(t, err)
	return e
}

// supersededAttempt: a goroutine of the first attempt wakes up when the second
// one, of the same process, is at work.
func supersededAttempt(t *testing.T) *evidence {
	e := &evidence{}
	s := journal.NewStore(&e.log, nil)
	must.Get(s.Claim(t.Context(), journal.Claim{Session: home, Home: home, Run: "r1", Task: task()}))(t)
	released, err := journal.NewEvent(journal.KindReleased, journal.Released{Attempt: 1, Reason: "shutdown", Run: "r1", Workflow: "w"})
	must.Do(t, err)
	must.Get(s.Commit(t.Context(), journal.Batch{Session: home, Run: "r1", Attempt: 1, Events: []session.Event{released}}))(t)
	must.Get(s.Claim(t.Context(), journal.Claim{Session: home, Home: home, Run: "r1"}))(t)
	_, err = s.Commit(t.Context(), done(t, 1, "0"))
	mustFence(t, "the outcome of a superseded attempt", err)
	must.Get(s.Commit(t.Context(), ended(t, 2)))(t)
	return e
}

// claiming is a store with a hook right before a claim.
type claiming struct {
	journal.Store
	before func()
}

func (s *claiming) Claim(ctx context.Context, c journal.Claim) (*journal.ClaimResult, error) {
	s.before()
	return s.Store.Claim(ctx, c)
}

func registration(fn flow.Func) flow.Registration {
	return flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return fn }}
}

// outcomeBeforeClaim: the outcome of a call reaches the log in the moment
// before another node claims the run.
func outcomeBeforeClaim(t *testing.T) *evidence {
	e := &evidence{}
	answer, stored := make(chan struct{}), make(chan struct{})
	work := func(after func(context.Context) error) flow.Func {
		return func(ctx context.Context, s session.Session) (session.Session, error) {
			i, _ := flow.RunInfo(ctx)
			_, err := flow.Do(ctx, "ask", func(context.Context) (int, error) {
				e.executed(audit.Execution{Run: string(i.Run), Step: string(i.Path), Attempt: i.Attempt, Tool: "ask"})
				<-answer
				return 1, nil
			}, tool.Idempotent)
			if err == nil {
				err = after(ctx)
			}
			return s, err
		}
	}
	values := journal.NewValues(&e.log)
	first := &engine.Runtime{Store: journal.NewStore(&e.log, &journal.StoreOptions{Incarnation: "i1", Values: values}), Values: values}
	ex := must.Get(first.Begin(t.Context(), registration(work(func(ctx context.Context) error {
		close(stored)
		<-ctx.Done() // the process hangs from here on
		return ctx.Err()
	})), *task()))(t)
	ctx, kill := context.WithCancel(t.Context())
	var zombie sync.WaitGroup
	zombie.Go(func() { _, _ = ex.Forward(ctx) })
	synctest.Wait() // the call is in flight

	later := journal.NewValues(&e.log)
	second := &engine.Runtime{Values: later, Store: &claiming{journal.NewStore(&e.log, &journal.StoreOptions{Incarnation: "i2", Values: later}), func() {
		close(answer)
		<-stored
	}}}
	resume := *task()
	resume.Resume = true
	ex = must.Get(second.Begin(t.Context(), registration(work(func(context.Context) error { return nil })), resume))(t)
	if state, err := ex.Forward(t.Context()); err != nil || state != run.Succeeded {
		t.Errorf("state %s, error %v", state, err)
	}
	kill()
	zombie.Wait()
	return e
}

// slow is a log that stores the first intent slowly.
type slow struct {
	commitlog.Log
	once sync.Once
	wait time.Duration
}

func (l *slow) Append(ctx context.Context, at commitlog.Position, c commitlog.Commit) (commitlog.Position, error) {
	pos, err := l.Log.Append(ctx, at, c)
	if slices.ContainsFunc(c.Events, func(e session.Event) bool { return e.Kind == journal.KindStepStarted }) {
		l.once.Do(func() { time.Sleep(l.wait) })
	}
	return pos, err
}

// slowIntent: the log is silent for longer than an intent lives, as when a
// leader is elected.
func slowIntent(t *testing.T) *evidence {
	e := &evidence{}
	log := &slow{Log: &e.log, wait: journal.IntentLife + time.Second}
	values := journal.NewValues(log)
	rt := &engine.Runtime{Store: journal.NewStore(log, &journal.StoreOptions{Values: values}), Values: values}
	ex := must.Get(rt.Begin(t.Context(), registration(func(ctx context.Context, s session.Session) (session.Session, error) {
		i, _ := flow.RunInfo(ctx)
		_, err := flow.Do(ctx, "pay", func(context.Context) (int, error) {
			e.executed(audit.Execution{Run: string(i.Run), Step: string(i.Path), Attempt: i.Attempt, Tool: "pay", Effect: "non_idempotent"})
			return 1, nil
		}, tool.NonIdempotent)
		return s, err
	}), *task()))(t)
	if state, err := ex.Forward(t.Context()); err != nil || state != run.Succeeded {
		t.Errorf("state %s, error %v", state, err)
	}
	return e
}

// dying is a log whose process dies at an append: it stores no more commits.
type dying struct {
	commitlog.Log
	left int
}

func (l *dying) Append(ctx context.Context, at commitlog.Position, c commitlog.Commit) (commitlog.Position, error) {
	if l.left--; l.left < 0 {
		return commitlog.Position{}, errors.Join(errors.New("the process died"), session.ErrUnavailable)
	}
	return l.Log.Append(ctx, at, c)
}

// deathBeforeAppend: a node dies between a request and the commit of it.
func deathBeforeAppend(t *testing.T) *evidence {
	e := &evidence{}
	log := &dying{Log: &e.log, left: 1}
	sys := actors.New(&actors.Options{Log: log, AppendTimeout: time.Second})
	for _, id := range []run.ID{"r1", "r2"} {
		tk := task()
		tk.ID, tk.Session.ID = id, session.ID("s-"+id)
		c := journal.Claim{Session: tk.Session, Home: tk.Session, Run: id, Task: tk, Enqueue: true}
		if _, err := sys.Store().Claim(t.Context(), c); err == nil {
			e.tell(audit.Told{Op: "submit", Run: string(id)})
		} else if id == "r1" {
			t.Error(err)
		}
		synctest.Wait() // the only append is that of the first one, which may be answered before it
	}
	drain, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.Report(t, sys.Drain(drain))
	// Another writer executes the accepted task.
	r1 := task()
	r1.Session.ID, r1.Resume = "s-r1", true
	values := journal.NewValues(&e.log)
	rt := &engine.Runtime{Store: journal.NewStore(&e.log, &journal.StoreOptions{Incarnation: "i2", Values: values}), Values: values}
	ex := must.Get(rt.Begin(t.Context(), registration(func(_ context.Context, s session.Session) (session.Session, error) {
		return s.With(session.UserText("done")), nil
	}), *r1))(t)
	if state, err := ex.Forward(t.Context()); err != nil || state != run.Succeeded {
		t.Errorf("state %s, error %v", state, err)
	}
	return e
}

// powerCut: the power fails right after a submit was acknowledged.
func powerCut(t *testing.T) *evidence {
	connect := func(o *natsserver.Options) *api.Conn {
		srv := natstest.Start(t, o)
		user, password := srv.Node()
		conn, err := api.Connect(t.Context(), &streams.Options{Options: conn.Options{Dialer: srv.Dial, User: user, Password: password}, Level: streams.Lazy, Partitions: 1})
		if err == nil {
			err = conn.Streams.Provision(t.Context())
		}
		must.Do(t, err)
		return conn
	}
	e := &evidence{}
	power := natstest.NewPower(t)
	conn := connect(power.Options())
	must.Get(journal.NewStore(conn.Logs.Log(), nil).Claim(t.Context(), journal.Claim{Session: home, Home: home, Run: "r1", Task: task()}))(t)
	e.tell(audit.Told{Op: "submit", Run: "r1"})
	left := power.Cut()
	must.Report(t, conn.Conn.Close())
	conn = connect(&natsserver.Options{StoreDir: left})
	defer conn.Conn.Close()
	s := journal.NewStore(conn.Logs.Log(), &journal.StoreOptions{Incarnation: "i2"})
	if _, err := s.Claim(t.Context(), journal.Claim{Session: home, Home: home, Run: "r1"}); err == nil {
		if _, err := s.Commit(t.Context(), ended(t, 2)); err != nil {
			t.Error(err)
		}
	} else if protection.Round {
		t.Error(err)
	}
	must.Do(t, conn.Logs.Dump(t.Context(), func(m eventlog.Stored) error {
		if strings.HasPrefix(m.Stream, "EV_") { // there is no relay here
			e.messages = append(e.messages, audit.Message(m))
		}
		return nil
	}))
	return e
}

// staleResume: an old, already delivered offer of a run is redelivered while the run
// waits for an operator.
func staleResume(t *testing.T) *evidence {
	e := &evidence{}
	values := journal.NewValues(&e.log)
	rt := &engine.Runtime{Store: journal.NewStore(&e.log, &journal.StoreOptions{Values: values}), Values: values}
	g := registration(func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Approve(ctx, "go on?", nil)
		return s.With(session.UserText("approved")), err
	})
	forward := func(t *testing.T, tk journal.Task) run.State {
		ex := must.Get(rt.Begin(t.Context(), g, tk))(t)
		if ex.State() != run.Running {
			return ex.State()
		}
		state, _ := ex.Forward(t.Context())
		return state
	}
	resume := *task()
	resume.Resume = true
	for _, tk := range []journal.Task{*task(), resume} {
		if state := forward(t, tk); state != run.Waiting {
			t.Errorf("state %s", state)
		}
	}
	yes := journal.Signal{To: home, Run: "r1", Received: &journal.SignalReceived{Kind: journal.Approve, By: "ann", Path: "0"}}
	must.Report(t, rt.Store.Apply(t.Context(), yes))
	if state := forward(t, resume); state != run.Succeeded {
		t.Errorf("state %s", state)
	}
	return e
}

// staleDispatch: a dispatch of the run after its first attempt is delivered again
// when the second one is at work.
func staleDispatch(t *testing.T) *evidence {
	e := &evidence{}
	claim := func(incarnation string, c journal.Claim) (journal.Store, error) {
		s := journal.NewStore(&e.log, &journal.StoreOptions{Incarnation: incarnation})
		c.Session, c.Home, c.Run = home, home, "r1"
		_, err := s.Claim(t.Context(), c)
		return s, err
	}
	if _, err := claim("i1", journal.Claim{Task: task()}); err != nil { // and dies
		t.Fatal(err)
	}
	dispatched := journal.Claim{Seen: &journal.Seen{Attempt: 1}}
	last, err := claim("i2", dispatched)
	must.Do(t, err)
	// A step, so that the attempt does not count as a death of its node: another check
	// rejects a suspect.
	must.Get(last.Commit(t.Context(), done(t, 2, "a")))(t)
	thief, err := claim("i3", dispatched)
	mustFence(t, "a dispatch that saw the attempt before", err)
	if err == nil {
		_, err = thief.Commit(t.Context(), ended(t, 3))
	} else {
		_, err = last.Commit(t.Context(), ended(t, 2))
	}
	must.Do(t, err)
	return e
}

// oneEventForTwoWaits: an event comes, and a run waits for it twice, one wait after the other.
func oneEventForTwoWaits(t *testing.T) *evidence {
	e := &evidence{}
	store := journal.NewStore(&e.log, nil)
	k := session.Key{Tenant: home.Tenant, ID: "event-1-0"}
	for n, s := range []journal.EventSignal{
		{Published: &journal.Published{ID: "a", Key: "k", Name: "n"}},
		{Awaited: &journal.EventAwaited{For: []journal.Wait{{Kind: run.WaitEvent, Log: k.ID, Path: "1"}}, N: 5, Run: "r1", Session: "elsewhere-1-0"}},
		{Awaited: &journal.EventAwaited{For: []journal.Wait{{After: 1, Kind: run.WaitEvent, Log: k.ID, Path: "2", Since: time.Now().UnixMilli()}}, N: 7, Run: "r1", Session: "elsewhere-1-0"}},
	} {
		if err := store.Apply(t.Context(), journal.Signal{To: k, Run: "r1", Event: &s}); err != nil {
			t.Errorf("signal %d: %v", n, err)
		}
	}
	return e
}

// twoOfOneKey: two tasks of a workflow with a limit of one come, and neither run ends.
func twoOfOneKey(t *testing.T) *evidence {
	e := &evidence{}
	var commits []commitlog.Entry
	store := journal.NewStore(&e.log, &journal.StoreOptions{OnCommit: func(c commitlog.Entry) { commits = append(commits, c) }})
	for _, id := range []run.ID{"r1", "r2"} {
		tk := &journal.Task{ID: id, Workflow: "w", Session: session.Key{Tenant: home.Tenant, ID: session.ID(id) + "-1-0"}}
		tk.Limit = must.Get(journal.NewLimit(&run.Limit{Concurrency: 1}, nil, commitlog.IDGenerator{Generation: 1, Partitions: 1}, tk))(t)
		must.Get(store.Claim(t.Context(), journal.Claim{Session: tk.Session, Home: tk.Session, Run: id, Task: tk}))(t)
	}
	for ; len(commits) > 0; commits = commits[1:] { // as the relays do
		for _, w := range must.Get(journal.Followups(commits[0], journal.Facts(commits[0].Commit)))(t) {
			if w.Signal != nil {
				must.Do(t, store.Apply(t.Context(), *w.Signal))
			}
		}
	}
	return e
}

// endBetweenRelays: a run ends after the relay of its partition has stored the open set
// for the last time, and before another relay takes over the partition.
func endBetweenRelays(t *testing.T) *evidence {
	srv := natstest.Start(t, nil)
	user, password := srv.Node()
	conn := must.Get(api.Connect(t.Context(), &streams.Options{Options: conn.Options{Dialer: srv.Dial, User: user, Password: password}, Level: streams.Lazy, Partitions: 1}))(t)
	defer conn.Conn.Close()
	must.Do(t, conn.Streams.Provision(t.Context()))
	relay := func() {
		ctx, stop := context.WithCancel(t.Context())
		r := conn.Dispatch.StartRelay(ctx, nil)
		time.Sleep(10 * time.Second)
		stop()
		must.Report(t, r.Wait())
	}
	s := journal.NewStore(conn.Logs.Log(), &journal.StoreOptions{Incarnation: "i1"})
	must.Get(s.Claim(t.Context(), journal.Claim{Session: home, Home: home, Run: "r1", Task: task()}))(t)
	relay()
	must.Get(s.Commit(t.Context(), ended(t, 1)))(t)
	relay()
	e := &evidence{}
	must.Do(t, conn.Logs.Dump(t.Context(), func(m eventlog.Stored) error {
		if strings.HasPrefix(m.Stream, "EV_") || m.Stream == streams.StreamResult {
			e.messages = append(e.messages, audit.Message(m))
		}
		return nil
	}))
	return e
}
