// Package runtest is the suite that every run.Store must pass.
//
// A store's own tests call [TestStore] with a function that makes a store over
// an empty log; how a store moves between nodes, drains and passivates it
// tests itself. Other nodes are played by stores of run.Direct over the same
// log.
package runtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestStore checks the contract of run.Store. open returns a store and the
// empty log that it writes to; it is called once per subtest and may register
// its own cleanup.
func TestStore(t *testing.T, open func(t *testing.T) (run.Store, session.Log)) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*suite)
	}{
		{"claim", testClaim},
		{"steps", testSteps},
		{"stale", testStale},
		{"whole or not at all", testWhole},
		{"unknown run", testUnknown},
		{"duplicate and reused id", testDuplicate},
		{"queue", testQueue},
		{"full queue", testFullQueue},
		{"release", testRelease},
		{"second attempt", testSecondAttempt},
		{"superseded attempt", testSuperseded},
		{"poison", testPoison},
		{"cancel while queued", testCancelQueued},
		{"cancel while running", testCancelRunning},
		{"cancel of a call under way", testCancelCall},
		{"cancel while nobody executes", testCancelIdle},
		{"deadline while nobody executes", testDeadline},
		{"review", testReview},
		{"resolution of an old call", testResolveOnce},
		{"branches", testBranch},
		{"branch of another run", testBranchBusy},
		{"closed branch", testClosed},
		{"branches of a run that failed", testOrphans},
		{"signal sent again", testAgain},
		{"end", testEnded},
		{"warm-first", testWarmFirst},
		{"warm-first, which waits", testWarmWaits},
		{"warm-first, without an answer", testWarmEnded},
		{"warm-first, decided by the first", testWarmDecided},
		{"warm-first, cancelled", testWarmCancelled},
		{"follow", testFollow},
		{"concurrency", testConcurrency},
		{"ended context", testContext},
	} {
		t.Run(c.name, func(t *testing.T) {
			store, log := open(t)
			c.test(&suite{T: t, store: store, log: log, home: session.Key{Tenant: session.DefaultTenant, ID: "home"}})
		})
	}
}

type suite struct {
	*testing.T
	store run.Store
	log   session.Log
	home  session.Key
}

// other returns the store of another node over the same log.
func (s *suite) other(incarnation string) *suite {
	o := *s
	o.store = run.Direct(s.log, &run.DirectOptions{Incarnation: incarnation})
	return &o
}

// task returns a task with everything that a later claim must find again.
func (s *suite) task(id run.ID) *run.Task {
	return &run.Task{
		ID: id, Workflow: "work", Revision: "r7", Session: s.home, Input: []byte(`{"x":1.50}`), Model: "m", Tools: []string{"a", "b"},
		Budget: run.Budget{Tokens: 100, Time: time.Minute}, Deadline: time.UnixMilli(1_900_000_000_000).UTC(),
	}
}

func (s *suite) submit(id run.ID) (*run.ClaimResult, error) {
	return s.store.Claim(s.Context(), run.Claim{
		Session: s.home, Home: s.home, Run: id, Task: s.task(id), Revision: "r7",
		Open:   session.Opening{Kind: session.OpenLeaf},
		Events: []session.Event{session.ChunkEvent(session.UserText("hello"))},
	})
}

func (s *suite) resume(id run.ID) (*run.ClaimResult, error) {
	return s.store.Claim(s.Context(), run.Claim{Session: s.home, Home: s.home, Run: id, Revision: "r7"})
}

func (s *suite) must(g *run.ClaimResult, err error) *run.ClaimResult {
	s.Helper()
	if err != nil {
		s.Fatalf("Claim: %v", err)
	}
	return g
}

// running claims and demands that the run may execute.
func (s *suite) running(g *run.ClaimResult, err error) *run.ClaimResult {
	s.Helper()
	s.must(g, err)
	if g.State != run.Running {
		s.Fatalf("Claim: run is %s, want %s", g.State, run.Running)
	}
	return g
}

// row is a model step that says text.
func (s *suite) row(id run.ID, attempt uint64, path run.Path, text string) []session.Event {
	s.Helper()
	done := run.StepCompleted{Attempt: attempt, Input: "in", Kind: run.StepModel, Name: "writer", Path: path, Row: true, Run: id}
	return []session.Event{session.ChunkEvent(session.AssistantText(text)), s.event(run.KindDone, done)}
}

func (s *suite) event(kind string, payload any) session.Event {
	s.Helper()
	e, err := run.NewEvent(kind, payload)
	if err != nil {
		s.Fatal(err)
	}
	return e
}

func (s *suite) commit(at session.Session, id run.ID, attempt uint64, path run.Path, events ...session.Event) (run.Ack, error) {
	return s.store.Commit(s.Context(), run.Batch{
		Session: at.Key(), Run: id, Attempt: attempt, Path: path, Base: at.Committed().Ref().Version, Events: events,
	})
}

// step commits a model step and returns the session after it.
func (s *suite) step(g *run.ClaimResult, at session.Session, path run.Path, text string) session.Session {
	s.Helper()
	a, err := s.commit(at, g.Record.ID, g.Attempt, path, s.row(g.Record.ID, g.Attempt, path, text)...)
	if err != nil {
		s.Fatalf("Commit of step %s: %v", path, err)
	}
	if a.Recorded != nil {
		s.Fatalf("Commit of step %s: it was there already", path)
	}
	return a.Session
}

func (s *suite) end(g *run.ClaimResult, at session.Session, state run.State, events ...session.Event) (run.Ack, error) {
	s.Helper()
	e := run.Ended{Attempt: g.Attempt, Run: g.Record.ID, State: state, Workflow: "work"}
	if l, ok := at.Link(); ok && state == run.Succeeded {
		e.Result, e.Output = &l, at.Text()
	}
	return s.commit(at, g.Record.ID, g.Attempt, "end", append(events, s.event(run.KindEnded, e))...)
}

// entries reads a log.
func (s *suite) entries(k session.Key) (all []session.Entry) {
	s.Helper()
	for e, err := range s.log.Read(s.Context(), k, session.Position{}) {
		if err != nil {
			s.Fatalf("Read: %v", err)
		}
		all = append(all, e)
	}
	return all
}

// kinds returns the kinds of all events in a log.
func (s *suite) kinds(k session.Key) (kinds []string) {
	s.Helper()
	for _, e := range s.entries(k) {
		for _, ev := range e.Commit.Events {
			kinds = append(kinds, ev.Kind)
		}
	}
	return kinds
}

// last decodes the newest event of a kind.
func last[T any](s *suite, k session.Key, kind string) T {
	s.Helper()
	all := s.entries(k)
	for _, e := range slices.Backward(all) {
		for _, ev := range slices.Backward(e.Commit.Events) {
			if ev.Kind != kind {
				continue
			}
			v, err := run.Read[T](ev)
			if err != nil {
				s.Fatal(err)
			}
			return v
		}
	}
	s.Fatalf("the log of %s has no %s: %v", k, kind, s.kinds(k))
	panic("not reached")
}

// work derives what all commits of a log ask for.
func (s *suite) work(k session.Key) (all []run.Work) {
	s.Helper()
	for _, e := range s.entries(k) {
		w, err := run.Derive(e)
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, w...)
	}
	return all
}

func (s *suite) wantErr(what string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("%s: %v, want %v", what, err, want)
	}
}

// unchanged demands that do appends nothing.
func (s *suite) unchanged(what string, k session.Key, do func()) {
	s.Helper()
	before := len(s.entries(k))
	do()
	if after := len(s.entries(k)); after != before {
		s.Errorf("%s appended %d commits: %v", what, after-before, s.kinds(k))
	}
}

// made demands that a value is marked with the newest commit of its log.
func (s *suite) made(what string, v session.Session) {
	s.Helper()
	l, ok := v.Link()
	if !ok {
		s.Errorf("%s has no link", what)
		return
	}
	e, err := s.log.Last(s.Context(), v.Key())
	if err != nil {
		s.Fatalf("Last: %v", err)
	}
	if l.Seq != e.At.Seq || l.Hash != e.At.Hash || l.Token != e.At.Token {
		s.Errorf("%s is made by commit %d (%s), the newest is %d (%s)", what, l.Seq, l.Hash.Short(), e.At.Seq, e.At.Hash.Short())
	}
}

func texts(v session.Session) (all []string) {
	for _, c := range v.Chunks() {
		all = append(all, c.Text())
	}
	return all
}

func (s *suite) wantTexts(what string, v session.Session, want ...string) {
	s.Helper()
	if got := texts(v); !slices.Equal(got, want) {
		s.Errorf("%s says %q, want %q", what, got, want)
	}
}

func (s *suite) cancel(to session.Key, id run.ID) error {
	return s.store.Apply(s.Context(), run.Signal{To: to, Run: id, Cancel: &run.CancelRequested{By: "someone", Reason: "changed my mind"}})
}

func (s *suite) resolve(id run.ID, decision string) error {
	return s.store.Apply(s.Context(), run.Signal{To: s.home, Run: id, Resolve: &run.Resolved{By: "someone", Decision: decision, Reason: "looked", Value: `"v"`}})
}

func testClaim(s *suite) {
	g := s.running(s.submit("r1"))
	if g.Attempt != 1 || g.Epoch == 0 || g.Journal == nil || g.Journal.Len() != 0 || g.Record == nil || g.Started.IsZero() {
		s.Errorf("granted attempt %d, epoch %d, record %v, started %v", g.Attempt, g.Epoch, g.Record, g.Started)
	}
	if g.Task.Digest() != s.task("r1").Digest() || string(g.Task.Input) != `{"x":1.50}` || g.Task.Session != s.home {
		s.Errorf("task came back as %+v", g.Task)
	}
	s.wantTexts("the session", g.Session, "hello")
	s.wantTexts("its base", g.Base, "hello")
	s.made("the session", g.Session)
	s.made("its base", g.Base)
	want := []string{run.KindWriter, session.KindOpened, session.KindChunk, run.KindSubmitted, run.KindClaimed}
	if got := s.kinds(s.home); !slices.Equal(got, want) {
		s.Errorf("log holds %v, want %v", got, want)
	}
	if len(s.entries(s.home)) != 1 {
		s.Errorf("a claim took %d commits", len(s.entries(s.home)))
	}
	if w := s.work(s.home); len(w) != 0 {
		s.Errorf("a claimed run is offered: %+v", w)
	}
}

func testSteps(s *suite) {
	g := s.running(s.submit("r1"))
	v := s.step(g, g.Session, "0", "one")
	s.made("the answer", v)
	first := v
	v = s.step(g, v, "1", "two")
	s.wantTexts("the session", v, "hello", "one", "two")
	s.unchanged("a step that is recorded", s.home, func() {
		a, err := s.commit(g.Session, "r1", 1, "0", s.row("r1", 1, "0", "other")...)
		if err != nil || a.Recorded == nil {
			s.Fatalf("Commit again: %+v, %v", a, err)
		}
		s.wantTexts("the record", a.Recorded.Session, "hello", "one")
		if l, _ := a.Session.Link(); l != must(first.Link()) {
			s.Errorf("the record was made by %+v, want %+v", l, must(first.Link()))
		}
	})
	for _, e := range s.entries(s.home) {
		for _, ev := range e.Commit.Events {
			if ev.Kind == run.KindDone || ev.Kind == session.KindChunk && e.At.Seq > 1 {
				if want := fmt.Sprintf("r1/%d", e.At.Seq-2); ev.Batch != want {
					s.Errorf("%s of commit %d has batch %q, want %q", ev.Kind, e.At.Seq, ev.Batch, want)
				}
			}
			if ev.Time.Before(time.UnixMilli(1_000)) {
				s.Errorf("%s has time %v", ev.Kind, ev.Time)
			}
		}
	}
	a, err := s.end(g, v, run.Succeeded)
	if err != nil || a.State != run.Succeeded {
		s.Fatalf("end: %+v, %v", a, err)
	}
	s.made("the result", a.Session)
	if e := last[run.Ended](s, s.home, run.KindEnded); e.Output != "two" || e.Next != nil {
		s.Errorf("ended as %+v", e)
	}
}

func must(l session.Link, ok bool) session.Link {
	if !ok {
		panic("no link")
	}
	return l
}

func testStale(s *suite) {
	g := s.running(s.submit("r1"))
	v := s.step(g, g.Session, "0", "one")
	s.unchanged("a stale step", s.home, func() {
		_, err := s.commit(g.Session, "r1", 1, "1", s.row("r1", 1, "1", "two")...)
		s.wantErr("a step on an older version", err, session.ErrStale)
	})
	// What adds nothing to the session does not mind its version.
	note := s.event(run.KindDone, run.StepCompleted{Attempt: 1, Input: "in", Kind: run.StepDo, Name: "n", Path: "1", Run: "r1", Value: "1"})
	if _, err := s.commit(g.Session, "r1", 1, "1", note); err != nil {
		s.Errorf("a step without content on an older version: %v", err)
	}
	s.step(g, v, "2", "three")
}

func testWhole(s *suite) {
	g := s.running(s.submit("r1"))
	for what, bad := range map[string]session.Event{
		"an unknown event":    {Kind: "run.unheard_of", Schema: 1, Data: `{}`},
		"a broken event":      {Kind: run.KindDone, Schema: 1, Data: `[]`},
		"a later schema":      {Kind: run.KindDone, Schema: 99, Data: `{}`},
		"a writer's event":    s.event(run.KindWriter, run.WriterOpened{Epoch: 77}),
		"a second opening":    session.OpenedEvent(session.Opening{Kind: session.OpenLeaf}),
		"an unresolved join":  session.JoinedEvent(session.Join{Policy: session.JoinAdopt, Parents: []session.Part{{Link: session.Link{Ref: session.Ref{Key: s.home}, Seq: 999}, To: 1}}}),
		"another run's ended": s.event(run.KindEnded, run.Ended{Attempt: 1, Run: "r2", State: run.Succeeded}),
	} {
		s.unchanged(what, s.home, func() {
			if a, err := s.commit(g.Session, "r1", 1, "0", session.ChunkEvent(session.UserText("x")), bad); err == nil {
				s.Errorf("%s was recorded: %+v", what, a)
			}
		})
	}
	s.wantTexts("the session afterwards", s.step(g, g.Session, "0", "one"), "hello", "one")
}

func testUnknown(s *suite) {
	_, err := s.resume("r1")
	s.wantErr("claim in an empty log", err, run.ErrUnknownRun)
	s.wantErr("signal in an empty log", s.cancel(s.home, "r1"), run.ErrUnknownRun)
	g := s.running(s.submit("r1"))
	_, err = s.resume("r2")
	s.wantErr("claim", err, run.ErrUnknownRun)
	_, err = s.commit(g.Session, "r2", 1, "0", s.row("r2", 1, "0", "x")...)
	s.wantErr("commit", err, run.ErrUnknownRun)
	s.wantErr("signal", s.cancel(s.home, "r2"), run.ErrUnknownRun)
	s.wantErr("empty signal", s.store.Apply(s.Context(), run.Signal{To: s.home, Run: "r1"}), run.ErrNotSupported)
}

func testDuplicate(s *suite) {
	g := s.running(s.submit("r1"))
	s.unchanged("a duplicate", s.home, func() {
		_, err := s.submit("r1")
		s.wantErr("the same task while it executes", err, run.ErrState)
		other := s.task("r1")
		other.Input = []byte(`{"x":2}`)
		_, err = s.store.Claim(s.Context(), run.Claim{Session: s.home, Home: s.home, Run: "r1", Task: other})
		s.wantErr("another task with the same id", err, run.ErrKeyReused)
	})
	if _, err := s.end(g, g.Session, run.Succeeded); err != nil {
		s.Fatal(err)
	}
	s.unchanged("a duplicate of what ended", s.home, func() {
		d := s.must(s.submit("r1"))
		if d.State != run.Succeeded || d.Record.Ended == nil || d.Record.Ended.Output != "" {
			s.Errorf("duplicate is answered with %s, %+v", d.State, d.Record)
		}
		if d := s.must(s.resume("r1")); d.State != run.Succeeded {
			s.Errorf("resume of what ended is answered with %s", d.State)
		}
	})
}

func testContext(s *suite) {
	g := s.running(s.submit("r1"))
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if err := s.store.Apply(ctx, run.Signal{To: s.home, Run: "r1", Cancel: &run.CancelRequested{Reason: "x"}}); err == nil {
		s.Log("a signal with an ended context was recorded: allowed, it is durable")
	} else if !errors.Is(err, context.Canceled) {
		s.Errorf("a signal with an ended context: %v", err)
	} else {
		// The request of one caller must not cost another one its session.
		s.step(g, g.Session, "0", "one")
	}
}
