package runtest

import (
	"slices"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// fork makes a branch as a workflow's fork does: the parent's step first, then
// the branch's first commit.
func (s *suite) fork(g *run.ClaimResult, parent session.Session, path run.Path, id session.ID) (session.Session, *run.ClaimResult) {
	s.Helper()
	k := session.Key{Tenant: s.home.Tenant, ID: id}
	done := run.StepCompleted{
		Attempt: g.Attempt, Input: "in", Kind: run.StepFork, Path: path, Run: g.Record.ID,
		Links: []session.Link{{Ref: session.Ref{Key: k, Version: parent.Ref().Version}}},
	}
	a, err := s.commit(parent, g.Record.ID, g.Attempt, path, s.event(run.KindDone, done))
	if err != nil {
		s.Fatalf("Commit of the fork: %v", err)
	}
	from := a.Session
	if a.Recorded != nil {
		from = a.Recorded.Session
	}
	return from, s.running(s.branch(g, from, path, id))
}

func (s *suite) branch(g *run.ClaimResult, from session.Session, path run.Path, id session.ID) (*run.ClaimResult, error) {
	return s.store.Claim(s.Context(), run.Claim{
		Session: session.Key{Tenant: s.home.Tenant, ID: id}, Home: s.home, Run: g.Record.ID, Attempt: g.Attempt, Root: from.Root(),
		Open: session.Opening{Kind: session.OpenFork, Parents: []session.Link{must(from.Link())}, Run: string(g.Record.ID), Step: string(path)},
	})
}

func testBranch(s *suite) {
	g := s.running(s.submit("r1"))
	v, b := s.fork(g, s.step(g, g.Session, "0", "one"), "1", "left")
	s.wantTexts("the branch", b.Session, "hello", "one")
	if b.Session.Root() != s.home.ID || b.Session.Ref().Version != v.Ref().Version {
		s.Errorf("the branch is %s of root %s", b.Session.Ref(), b.Session.Root())
	}
	s.unchanged("a second claim by the same attempt", b.Session.Key(), func() {
		again := s.running(s.branch(g, v, "1", "left"))
		if again.Session.Ref() != b.Session.Ref() {
			s.Errorf("claimed again as %s", again.Session.Ref())
		}
	})
	left := s.step(&run.ClaimResult{Record: b.Record, Attempt: 1}, b.Session, "2", "on the left")
	v = s.step(g, v, "3", "on the trunk")
	s.wantTexts("the trunk", v, "hello", "one", "on the trunk")
	s.wantTexts("the branch", left, "hello", "one", "on the left")

	join, err := session.JoinOf(v, session.JoinSinceAncestor, "", -1, left)
	if err != nil {
		s.Fatal(err)
	}
	done := run.StepCompleted{Attempt: 1, Input: "in", Kind: run.StepJoin, Name: session.JoinSinceAncestor, Path: "4", Run: "r1", Links: []session.Link{must(left.Link())}}
	a, err := s.commit(v, "r1", 1, "4", session.JoinedEvent(join), s.event(run.KindDone, done))
	if err != nil {
		s.Fatal(err)
	}
	s.wantTexts("the trunk after the join", a.Session, "hello", "one", "on the trunk", "on the left")

	// The next attempt claims every log of the run before it reads its journal.
	after := s.other("after")
	g2 := after.running(after.resume("r1"))
	if g2.Journal.Has("2") || !g2.Journal.Has("4") {
		s.Error("the home's journal mixes the logs")
	}
	b2 := after.running(after.branch(g2, v, "1", "left"))
	g2.Journal.Merge(b2.Journal)
	if d, st, err := g2.Journal.Next(run.StepRequest{Path: "2", Kind: run.StepModel, Name: "writer", Input: "in"}); d != run.Replay || err != nil {
		s.Errorf("the branch's step is decided as %d, %v", d, err)
	} else {
		s.wantTexts("its value", st.Session, "hello", "one", "on the left")
	}
	_, err = after.branch(g, v, "1", "left")
	s.wantErr("a claim by a lower attempt", err, run.ErrSuperseded)
}

func testBranchBusy(s *suite) {
	g := s.running(s.submit("r1"))
	_, b := s.fork(g, g.Session, "0", "left")
	other := *g
	other.Record = &run.Record{ID: "r9"}
	_, err := s.branch(&other, g.Session, "0", "left")
	s.wantErr("a claim by another run", err, run.ErrBusy)
	rel := s.event(run.KindReleased, run.Released{Attempt: 1, Reason: "ended", Run: "r1"})
	if _, err := s.commit(b.Session, "r1", 1, "", rel); err != nil {
		s.Fatal(err)
	}
	_, err = s.commit(b.Session, "r1", 1, "1", s.row("r1", 1, "1", "x")...)
	s.wantErr("a step after the branch was let go", err, run.ErrSuperseded)
	// Another run may go on with it as its home.
	t := s.task("r2")
	t.Session = b.Session.Key()
	g2 := s.running(s.store.Claim(s.Context(), run.Claim{Session: t.Session, Home: t.Session, Run: "r2", Task: t}))
	s.wantTexts("its base", g2.Base, "hello")
}

func testClosed(s *suite) {
	g := s.running(s.submit("r1"))
	v, b := s.fork(g, g.Session, "0", "left")
	left := s.step(&run.ClaimResult{Record: b.Record, Attempt: 1}, b.Session, "1", "on the left")
	closing := session.ClosedEvent(session.Closing{By: s.home, Reason: "no", State: session.ClosedRejected})
	a, err := s.commit(left, "r1", 1, "", closing)
	if err != nil || a.Session.Closing().State != session.ClosedRejected {
		s.Fatalf("close: %+v, %v", a.Session.Closing(), err)
	}
	s.unchanged("what comes after the end of a branch", left.Key(), func() {
		_, err := s.commit(left, "r1", 1, "2", s.row("r1", 1, "2", "more")...)
		s.wantErr("content", err, session.ErrClosed)
		if _, err := s.commit(left, "r1", 1, "", session.ClosedEvent(session.Closing{State: session.ClosedAdopted})); err != nil {
			s.Errorf("closing again: %v", err)
		}
		t := s.task("r2")
		t.Session = left.Key()
		_, err = s.store.Claim(s.Context(), run.Claim{Session: t.Session, Home: t.Session, Run: "r2", Task: t})
		s.wantErr("a task for it", err, session.ErrClosed)
		after := s.other("after")
		g2 := after.running(after.resume("r1"))
		b2 := after.running(after.branch(g2, v, "0", "left"))
		if !b2.Journal.Has("1") || b2.Session.Closing().State != session.ClosedRejected {
			s.Errorf("a closed branch shows %d steps and %+v", b2.Journal.Len(), b2.Session.Closing())
		}
	})
}

// testOrphans: the end of a run that failed asks for the end of the branches
// that it left open, also of those that it decided about.
func testOrphans(s *suite) {
	g := s.running(s.submit("r1"))
	v, left := s.fork(g, g.Session, "0", "left")
	v, right := s.fork(g, v, "1", "right")
	link := must(right.Session.Link())
	reject := run.StepCompleted{Attempt: 1, Input: "in", Kind: run.StepReject, Name: session.ClosedRejected, Path: "2", Run: "r1", Links: []session.Link{link}}
	if _, err := s.commit(v, "r1", 1, "2", session.RejectedEvent(session.Rejection{Branch: link, Reason: "no", State: session.ClosedRejected}), s.event(run.KindDone, reject)); err != nil {
		s.Fatal(err)
	}
	if _, err := s.end(g, v, run.Failed); err != nil {
		s.Fatal(err)
	}
	var open []session.ID
	for _, w := range s.work(s.home) {
		if w.Signal == nil || w.Signal.Cancel == nil {
			s.Errorf("the end asks for %+v", w)
			continue
		}
		open = append(open, w.Signal.To.ID)
		if err := s.store.Apply(s.Context(), *w.Signal); err != nil {
			s.Fatal(err)
		}
		s.wantErr("the same signal again", s.store.Apply(s.Context(), *w.Signal), run.ErrState)
	}
	if !slices.Equal(open, []session.ID{"left", "right"}) {
		s.Fatalf("the end of the run ends %v, want the branches left, which is open, and right, which nobody closed", open)
	}
	_, err := s.commit(left.Session, "r1", 1, "3", s.row("r1", 1, "3", "x")...)
	if !run.IsControl(err) {
		s.Errorf("a step of the branch: %v, want a control error", err)
	}
	all := s.entries(left.Session.Key())
	var closing session.Closing
	for _, e := range all {
		for _, ev := range e.Commit.Events {
			if ev.Kind == session.KindClosed {
				if closing, err = session.DecodeClosing(ev); err != nil {
					s.Fatal(err)
				}
			}
		}
	}
	if closing.State != session.ClosedCancelled || closing.By != s.home {
		s.Errorf("the branch was closed as %+v", closing)
	}
	_, err = s.branch(g, v, "0", "left")
	if !run.IsControl(err) {
		s.Errorf("a claim of the branch: %v, want a control error", err)
	}
}
