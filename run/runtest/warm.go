package runtest

import (
	"slices"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// warmFirst opens a fan-out of three branches of which only the first begins,
// and waits for need of them.
func (s *suite) warmFirst(g *run.ClaimResult, need int) run.FanOut {
	s.Helper()
	id := g.Record.ID
	f := run.FanOut{
		Ancestors: []run.Ancestor{{Run: id, Session: s.home.ID}}, Base: must(g.Session.Link()), Path: "0", Root: s.home.ID, Run: id, Warm: true, Workflow: "work",
	}
	w := run.Wait{Kind: run.WaitBranches, Need: need, Path: run.GatherPath(f.Path)}
	for _, name := range []string{"a", "b", "c"} {
		f.Branches = append(f.Branches, run.FanOutBranch{Name: name, Session: session.ID("fan-" + name)})
		w.Branches = append(w.Branches, session.ID("fan-"+name))
	}
	_, err := s.commit(g.Session, id, g.Attempt, f.Path, s.event(run.KindFanOut, f),
		s.event(run.KindDone, run.StepCompleted{Attempt: g.Attempt, Input: "in", Kind: run.StepFanOut, Path: f.Path, Run: id}),
		s.event(run.KindWaiting, run.RunWaiting{Attempt: g.Attempt, For: []run.Wait{w}, Run: id}))
	if err != nil {
		s.Fatalf("Commit of the fan-out: %v", err)
	}
	return f
}

// begun returns the branches whose tasks follow from the home's log. They must
// be those that the fan-out says.
func (s *suite) begun(f run.FanOut) (names []string) {
	s.Helper()
	for _, w := range s.work(s.home) {
		if w.Task == nil || w.Task.Branch == nil {
			continue
		}
		names = append(names, w.Task.Branch.Name)
		i := slices.IndexFunc(f.Branches, func(b run.FanOutBranch) bool { return b.Session == w.Task.Session.ID })
		if want := f.Tasks(s.home.Tenant)[i]; w.Task.Digest() != want.Digest() || w.Task.Branch.Warm != (i == 0) {
			s.Errorf("the task of branch %d is %+v, want %+v", i, w.Task, want)
		}
	}
	return names
}

func (s *suite) wantBegun(when string, f run.FanOut, want ...string) {
	s.Helper()
	if got := s.begun(f); !slices.Equal(got, want) {
		s.Errorf("%s branches %v begin, want %v", when, got, want)
	}
}

// first begins the first branch.
func (s *suite) first(f run.FanOut) *run.ClaimResult {
	s.Helper()
	t := f.Tasks(s.home.Tenant)[0]
	return s.running(s.store.Claim(s.Context(), run.Claim{
		Session: t.Session, Home: t.Session, Run: t.ID, Task: &t, Root: f.Root,
		Open: session.Opening{Kind: session.OpenFork, Name: "a", Parents: []session.Link{f.Base}, Run: string(f.Run), Step: string(t.Branch.Path)},
	}))
}

// warmed commits the branch's first answer and returns what it tells.
func (s *suite) warmed(b *run.ClaimResult) run.Signal {
	s.Helper()
	id := b.Record.ID
	told := s.event(run.KindWarmed, run.Warmed{Parent: *b.Task.Branch.Parent(), Run: id})
	if _, err := s.commit(b.Session, id, b.Attempt, "0.a.0", append(s.row(id, b.Attempt, "0.a.0", "answer"), told)...); err != nil {
		s.Fatalf("Commit of the first answer: %v", err)
	}
	return s.only(b.Session.Key(), run.Warm)
}

// over ends the branch and returns its report.
func (s *suite) over(b *run.ClaimResult, state run.State) run.Signal {
	s.Helper()
	e := run.Ended{Attempt: b.Attempt, Run: b.Record.ID, State: state, Workflow: "work"}
	if _, err := s.commit(b.Session, b.Record.ID, b.Attempt, "end", s.event(run.KindEnded, e)); err != nil {
		s.Fatalf("Commit of the branch's end: %v", err)
	}
	return s.only(b.Session.Key(), run.Report)
}

// only returns the one signal of a kind that a log's commits ask for.
func (s *suite) only(k session.Key, kind string) run.Signal {
	s.Helper()
	var all []run.Signal
	for _, w := range s.work(k) {
		if w.Signal != nil && w.Signal.Received != nil && w.Signal.Received.Kind == kind {
			all = append(all, *w.Signal)
		}
	}
	if len(all) != 1 || all[0].To != s.home || all[0].Received.Path != "0.gather" {
		s.Fatalf("%s tells %+v, want one %s to %s", k, all, kind, s.home)
	}
	return all[0]
}

func (s *suite) apply(what string, sig run.Signal) {
	s.Helper()
	if err := s.store.Apply(s.Context(), sig); err != nil {
		s.Errorf("%s: %v", what, err)
	}
}

func testWarmFirst(s *suite) {
	f := s.warmFirst(s.running(s.submit("r1")), 0)
	s.wantBegun("at first", f, "a")
	b := s.first(f)
	warm := s.warmed(b)
	// Whoever holds the session by then knows from its log what is held.
	after := s.other("after")
	after.apply("the first answer", warm)
	s.wantBegun("after the first answer", f, "a", "b", "c")
	s.unchanged("the first answer again", s.home, func() { after.apply("it", warm) })
	for _, v := range s.entries(s.home) {
		for _, ev := range v.Commit.Events {
			if ev.Kind == run.KindReceived {
				t, err := run.Read[run.SignalReceived](ev)
				s.Errorf("the inbox holds %+v (%v)", t, err)
			}
		}
	}
	report := s.over(&run.ClaimResult{Record: b.Record, Attempt: 1, Session: b.Session}, run.Failed)
	after.apply("the report", report)
	s.wantBegun("after the report", f, "a", "b", "c")
	s.unchanged("both again", s.home, func() {
		after.apply("the first answer", warm)
		after.apply("the report", report)
	})
}

// testWarmWaits: a first branch that waits, or that a person has to look at, lets
// the others begin; one that need not wait after all does not.
func testWarmWaits(s *suite) {
	f := s.warmFirst(s.running(s.submit("r1")), 0)
	b := s.first(f)
	id := b.Record.ID
	told := s.event(run.KindWarmed, run.Warmed{Parent: *b.Task.Branch.Parent(), Run: id})
	waits := s.event(run.KindWaiting, run.RunWaiting{Attempt: b.Attempt, For: []run.Wait{{Kind: run.WaitMessage, Path: "0.a.0"}}, Run: id})
	s.apply("a message", run.Signal{To: b.Session.Key(), Run: id, Received: &run.SignalReceived{Kind: run.Message, Text: "hello"}})
	s.unchanged("a wait for what has come", b.Session.Key(), func() {
		if a, err := s.commit(b.Session, id, b.Attempt, "", told, waits); err != nil || a.State != run.Running || len(a.Inbox) != 1 {
			s.Errorf("Commit: %+v, %v", a, err)
		}
	})
	for i := range run.MaxClaims {
		t := f.Tasks(s.home.Tenant)[0]
		p, err := s.other(string(rune('A'+i))).store.Claim(s.Context(), run.Claim{Session: t.Session, Home: t.Session, Run: t.ID})
		if err != nil {
			s.Fatalf("claim %d: %v", i, err)
		}
		b = p
	}
	if b.State != run.NeedsReview {
		s.Fatalf("the branch is %s", b.State)
	}
	s.apply("that it needs review", s.only(b.Session.Key(), run.Warm))
	s.wantBegun("then", f, "a", "b", "c")
}

// testWarmEnded: a first branch that ends without an answer lets the others
// begin too, however it ended.
func testWarmEnded(s *suite) {
	f := s.warmFirst(s.running(s.submit("r1")), 1)
	b := s.first(f)
	report := s.over(b, run.Failed)
	s.wantBegun("before the report", f, "a")
	s.apply("the report", report)
	s.wantBegun("after the report", f, "a", "b", "c")
	s.unchanged("the report and an answer after it", s.home, func() {
		s.apply("the report", report)
		s.apply("an answer", run.Signal{To: s.home, Run: "r1", Received: &run.SignalReceived{Kind: run.Warm, Path: "0.gather", Run: "r1"}})
	})
}

// testWarmDecided: where the first branch decides the join, nobody needs the
// others, whatever comes.
func testWarmDecided(s *suite) {
	f := s.warmFirst(s.running(s.submit("r1")), 1)
	b := s.first(f)
	s.unchanged("an answer for another step", s.home, func() {
		s.apply("it", run.Signal{To: s.home, Run: "r1", Received: &run.SignalReceived{Kind: run.Warm, Path: "7.gather", Run: "r1"}})
	})
	s.apply("the report", s.over(b, run.Succeeded))
	if v := last[run.SignalReceived](s, s.home, run.KindReceived); v.Wake != 1 {
		s.Errorf("the report is received as %+v, want it to wake the run", v)
	}
	warm := run.Signal{To: s.home, Run: "r1", Received: &run.SignalReceived{Kind: run.Warm, Path: "0.gather", Run: "r1"}}
	s.unchanged("an answer after that", s.home, func() { s.apply("it", warm) })
	g := s.running(s.resume("r1"))
	s.unchanged("an answer while the run goes on", s.home, func() { s.apply("it", warm) })
	gather := run.StepCompleted{Attempt: g.Attempt, Input: "in", Kind: run.StepGather, Path: "0.gather", Run: "r1", Value: "[]"}
	if _, err := s.commit(g.Session, "r1", g.Attempt, "0.gather", s.event(run.KindDone, gather)); err != nil {
		s.Fatal(err)
	}
	s.unchanged("an answer after the branches were taken in", s.home, func() { s.apply("it", warm) })
	s.wantBegun("after all", f, "a")
}

// testWarmCancelled: a run that was cancelled lets nothing begin.
func testWarmCancelled(s *suite) {
	f := s.warmFirst(s.running(s.submit("r1")), 0)
	b := s.first(f)
	if err := s.cancel(s.home, "r1"); err != nil {
		s.Fatal(err)
	}
	s.unchanged("an answer for a run that was cancelled", s.home, func() {
		s.wantErr("it", s.store.Apply(s.Context(), s.warmed(b)), run.ErrState)
	})
	s.wantBegun("after the end", f, "a")
	e := last[run.Ended](s, s.home, run.KindEnded)
	if len(e.Branches) != 3 {
		s.Errorf("the run ended with branches %v, want all that it opened", e.Branches)
	}
	other := run.Warmed{Parent: run.Ancestor{Path: "0.gather", Run: "r1", Session: s.home.ID}, Run: "r1"}
	_, err := s.commit(b.Session, b.Record.ID, b.Attempt, "0.a.1", s.event(run.KindWarmed, other))
	s.wantErr("an answer in another run's name", err, run.ErrState)
}
