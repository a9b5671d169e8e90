package runtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func testQueue(s *suite) {
	g := s.running(s.submit("r1"))
	for _, id := range []run.ID{"r2", "r3"} {
		q := s.must(s.submit(id))
		if q.State != run.Queued {
			s.Fatalf("%s on a busy session is %s", id, q.State)
		}
	}
	if sub := last[run.Submitted](s, s.home, run.KindSubmitted); sub.Behind != "r1" {
		s.Errorf("r3 waits behind %q", sub.Behind)
	}
	s.unchanged("a claim of a queued run", s.home, func() {
		if q := s.must(s.resume("r2")); q.State != run.Queued {
			s.Errorf("r2 is %s while r1 executes", q.State)
		}
	})
	if w := s.work(s.home); len(w) != 0 {
		s.Errorf("queued runs are offered: %+v", w)
	}
	v := s.step(g, g.Session, "0", "one")
	if _, err := s.end(g, v, run.Succeeded, session.ChunkEvent(session.UserText("last words"))); err != nil {
		s.Fatal(err)
	}
	w := s.work(s.home)
	if len(w) != 1 || w[0].Task == nil || w[0].Task.ID != "r2" || !w[0].Task.Resume || w[0].Task.Workflow != "work" || w[0].Task.Session != s.home {
		s.Fatalf("the end of r1 asks for %+v, want an offer of r2", w)
	}
	q := s.must(s.submit("r4"))
	if q.State != run.Queued {
		s.Errorf("a task that comes between is %s, want it behind r2", q.State)
	}
	g2 := s.running(s.resume("r2"))
	if g2.Task.Digest() != s.task("r2").Digest() || string(g2.Task.Input) != `{"x":1.50}` {
		s.Errorf("the queued task came back as %+v", g2.Task)
	}
	s.wantTexts("the base of r2", g2.Base, "hello", "one", "last words")
	if _, err := s.end(g2, g2.Session, run.Failed); err != nil {
		s.Fatal(err)
	}
	if e := last[run.Ended](s, s.home, run.KindEnded); e.Next == nil || e.Next.Run != "r3" {
		s.Errorf("the end of r2 promotes %+v, want r3", e.Next)
	}
}

func testFullQueue(s *suite) {
	s.running(s.submit("r"))
	for i := range run.MaxQueue {
		if q := s.must(s.submit(run.ID(fmt.Sprint("q", i)))); q.State != run.Queued {
			s.Fatalf("task %d is %s", i, q.State)
		}
	}
	s.unchanged("a task over the bound", s.home, func() {
		_, err := s.submit("over")
		s.wantErr("a task over the bound", err, run.ErrBusy)
	})
	if q := s.must(s.submit("q0")); q.State != run.Queued {
		s.Errorf("a duplicate of a queued task is %s", q.State)
	}
}

func testRelease(s *suite) {
	g := s.running(s.submit("r1"))
	v := s.step(g, g.Session, "0", "one")
	rel := s.event(run.KindReleased, run.Released{Attempt: 1, Reason: "shutdown", Revision: "r7", Run: "r1", Workflow: "work"})
	a, err := s.commit(v, "r1", 1, "", rel)
	if err != nil || a.State != run.Queued {
		s.Fatalf("release: %+v, %v", a, err)
	}
	if w := s.work(s.home); len(w) != 1 || w[0].Task == nil || w[0].Task.ID != "r1" || w[0].Task.Revision != "r7" {
		s.Errorf("a released run asks for %+v, want to be offered", w)
	}
	if q := s.must(s.submit("r2")); q.State != run.Queued {
		s.Errorf("another task is %s while a released run holds the session", q.State)
	}
	_, err = s.commit(v, "r1", 1, "1", s.row("r1", 1, "1", "two")...)
	s.wantErr("a step after the release", err, run.ErrSuperseded)
	g = s.running(s.resume("r1"))
	if g.Attempt != 2 || g.Journal.Len() != 1 || !g.Journal.Has("0") {
		s.Errorf("claimed again as attempt %d with %d steps", g.Attempt, g.Journal.Len())
	}
	s.wantTexts("the base", g.Base, "hello")
	s.wantTexts("the session", g.Session, "hello", "one")
	s.step(g, g.Session, "1", "two")
}

func testCancelQueued(s *suite) {
	g := s.running(s.submit("r1"))
	s.must(s.submit("r2"))
	s.must(s.submit("r3"))
	if err := s.cancel(s.home, "r2"); err != nil {
		s.Fatal(err)
	}
	if d := s.must(s.resume("r2")); d.State != run.Cancelled || d.Record.Ended == nil || d.Record.Ended.Code != run.CodeCancelled {
		s.Errorf("r2 is %s, %+v", d.State, d.Record.Ended)
	}
	s.unchanged("a second cancel", s.home, func() {
		s.wantErr("cancel of what ended", s.cancel(s.home, "r2"), run.ErrState)
	})
	if _, err := s.end(g, g.Session, run.Succeeded); err != nil {
		s.Fatal(err)
	}
	if e := last[run.Ended](s, s.home, run.KindEnded); e.Next == nil || e.Next.Run != "r3" {
		s.Errorf("promotes %+v, want r3", e.Next)
	}
}

func testCancelRunning(s *suite) {
	g := s.running(s.submit("r1"))
	v := s.step(g, g.Session, "0", "one")
	s.must(s.submit("r2"))
	if err := s.cancel(s.home, "r1"); err != nil {
		s.Fatal(err)
	}
	s.unchanged("what comes after a cancel", s.home, func() {
		if err := s.cancel(s.home, "r1"); err != nil {
			s.Errorf("a second cancel: %v", err)
		}
		_, err := s.commit(v, "r1", 1, "1", s.row("r1", 1, "1", "two")...)
		s.wantErr("a step", err, run.ErrCancelled)
		intent := s.event(run.KindIntent, run.StepStarted{Attempt: 1, Call: "c", Input: "in", Name: "n", Path: "1", Run: "r1"})
		_, err = s.commit(v, "r1", 1, "1", intent)
		s.wantErr("an intent", err, run.ErrCancelled)
	})
	a, err := s.end(g, v, run.Succeeded, session.ChunkEvent(session.UserText("too late")))
	if err != nil || a.State != run.Cancelled {
		s.Fatalf("the end after a cancel: state %s, %v", a.State, err)
	}
	s.wantTexts("the session", a.Session, "hello", "one")
	e := last[run.Ended](s, s.home, run.KindEnded)
	if e.State != run.Cancelled || e.Code != run.CodeCancelled || e.Result != nil || e.Next == nil || e.Next.Run != "r2" {
		s.Errorf("ended as %+v", e)
	}
	_, err = s.commit(v, "r1", 1, "1", s.row("r1", 1, "1", "two")...)
	s.wantErr("a step after the end", err, run.ErrSuperseded)
}

// testCancelCall: what became of a call that had its intent is recorded, as
// text and not as a chunk.
func testCancelCall(s *suite) {
	g := s.running(s.submit("r1"))
	intent := s.event(run.KindIntent, run.StepStarted{Attempt: 1, Call: "c", Input: "in", Name: "send", Path: "0", Run: "r1"})
	if _, err := s.commit(g.Session, "r1", 1, "0", intent); err != nil {
		s.Fatal(err)
	}
	if err := s.cancel(s.home, "r1"); err != nil {
		s.Fatal(err)
	}
	_, err := s.commit(g.Session, "r1", 1, "0", s.row("r1", 1, "0", "sent")...)
	s.wantErr("the outcome", err, run.ErrCancelled)
	d := last[run.StepCompleted](s, s.home, run.KindDone)
	if d.Path != "0" || d.Row || d.Value == "" {
		s.Errorf("the outcome is recorded as %+v", d)
	}
	a, err := s.end(g, g.Session, run.Cancelled)
	if err != nil {
		s.Fatal(err)
	}
	s.wantTexts("the session", a.Session, "hello")
}

func testCancelIdle(s *suite) {
	before := s.other("before")
	g := before.running(before.submit("r1"))
	v := before.step(g, g.Session, "0", "one")
	s.must(s.submit("r2"))
	if err := s.cancel(s.home, "r1"); err != nil {
		s.Fatal(err)
	}
	if e := last[run.Ended](s, s.home, run.KindEnded); e.Run != "r1" || e.State != run.Cancelled || e.Next == nil || e.Next.Run != "r2" {
		s.Errorf("cancel of a run that nobody executes here: %+v", e)
	}
	_, err := before.commit(v, "r1", 1, "1", s.row("r1", 1, "1", "two")...)
	if !run.IsControl(err) {
		s.Errorf("the zombie's step: %v, want a control error", err)
	}
}

// testDeadline: a run ends at its deadline, whoever asks, if the one who held it
// holds it no more; who holds it ends it himself.
func testDeadline(s *suite) {
	late := func(o *suite, k session.Key, id run.ID) *run.ClaimResult {
		t := s.task(id)
		t.Session, t.Deadline = k, time.UnixMilli(1_000_000_000_000)
		return o.running(o.store.Claim(s.Context(), run.Claim{Session: k, Home: k, Run: id, Task: t, Open: session.Opening{Kind: session.OpenLeaf}}))
	}
	tick := run.Signal{To: s.home, Tick: true}
	own := session.Key{Tenant: s.home.Tenant, ID: "own"}
	g := late(s, own, "r0")
	s.unchanged("a run that executes", own, func() {
		s.wantErr("a look at the clock", s.store.Apply(s.Context(), run.Signal{To: own, Tick: true}), run.ErrState)
	})
	s.step(g, g.Session, "0", "one")

	before := s.other("before")
	g = late(before, s.home, "r1")
	v := before.step(g, g.Session, "0", "one")
	intent := s.event(run.KindIntent, run.StepStarted{Attempt: 1, Call: "c", Input: "in", Name: "send", Path: "1", Run: "r1"})
	if _, err := before.commit(v, "r1", 1, "1", intent); err != nil {
		s.Fatal(err)
	}
	s.must(s.submit("r2"))
	if err := s.store.Apply(s.Context(), tick); err != nil {
		s.Fatal(err)
	}
	e := last[run.Ended](s, s.home, run.KindEnded)
	if e.Run != "r1" || e.State != run.TimedOut || e.Code != run.CodeDeadline || e.Steps != 1 || e.Next == nil || e.Next.Run != "r2" {
		s.Errorf("its end is %+v", e)
	}
	for _, says := range []string{"deadline", "attempt 1", `workflow "work"`, `"send" at step 1`} {
		if !strings.Contains(e.Error, says) {
			s.Errorf("the reason does not say %s: %s", says, e.Error)
		}
	}
	_, err := before.commit(v, "r1", 1, "2", s.row("r1", 1, "2", "two")...)
	if !run.IsControl(err) {
		s.Errorf("the zombie's step: %v, want a control error", err)
	}
	s.wantErr("another look", s.store.Apply(s.Context(), tick), run.ErrState)
}

func (s *suite) review(g *run.ClaimResult, path run.Path) {
	s.Helper()
	v := s.event(run.KindReview, run.Review{Attempt: g.Attempt, Code: run.CodeReview, Path: path, Reason: "who knows", Run: g.Record.ID})
	a, err := s.commit(g.Session, g.Record.ID, g.Attempt, "", v)
	if err != nil || a.State != run.NeedsReview {
		s.Fatalf("review: %+v, %v", a, err)
	}
}

func testReview(s *suite) {
	g := s.running(s.submit("r1"))
	s.wantErr("resolve of a run that executes", s.resolve("r1", run.Again), run.ErrState)
	intent := s.event(run.KindIntent, run.StepStarted{Attempt: 1, Call: "c", Input: "in", Name: "send", Path: "0", Run: "r1"})
	if _, err := s.commit(g.Session, "r1", 1, "0", intent); err != nil {
		s.Fatal(err)
	}
	s.review(g, "0")
	s.unchanged("what a review keeps back", s.home, func() {
		if d := s.must(s.resume("r1")); d.State != run.NeedsReview || d.Record.Review == nil || d.Record.Review.Path != "0" {
			s.Errorf("claim answers %s, %+v", d.State, d.Record.Review)
		}
		if err := s.resolve("r1", "maybe"); err == nil {
			s.Error("the decision «maybe» was taken")
		}
	})
	if q := s.must(s.submit("r2")); q.State != run.Queued {
		s.Errorf("another task is %s while the session waits for a person", q.State)
	}
	if err := s.resolve("r1", run.Happened); err != nil {
		s.Fatal(err)
	}
	if w := s.work(s.home); len(w) != 1 || w[0].Task == nil || w[0].Task.ID != "r1" {
		s.Errorf("a resolved run asks for %+v", w)
	}
	g = s.running(s.resume("r1"))
	if d, _, _ := g.Journal.Next(run.StepRequest{Path: "0", Kind: run.StepTool, Name: "send", Input: "in"}); d != run.Ambiguous {
		s.Errorf("the resolved call is decided as %d", d)
	}
	if v, ok := g.Journal.Resolution("0"); !ok || v.Decision != run.Happened || v.Value != `"v"` || v.By != "someone" {
		s.Errorf("resolution is %+v, %v", v, ok)
	}
	s.review(g, "0")
	if err := s.resolve("r1", run.Fail); err != nil {
		s.Fatal(err)
	}
	e := last[run.Ended](s, s.home, run.KindEnded)
	if e.State != run.Failed || e.Code != run.CodeReview || e.Error != "looked" || e.Next == nil || e.Next.Run != "r2" {
		s.Errorf("ended as %+v", e)
	}
	g = s.running(s.resume("r2"))
	s.review(g, "")
	if err := s.cancel(s.home, "r2"); err != nil {
		s.Fatal(err)
	}
	if d := s.must(s.resume("r2")); d.State != run.Cancelled {
		s.Errorf("a run in review that is cancelled is %s", d.State)
	}
}

// testResolveOnce: «run it again» holds for the call that was looked at. When
// that one is cut off too, nobody has decided about it.
func testResolveOnce(s *suite) {
	asked := run.StepRequest{Path: "0", Kind: run.StepTool, Name: "send", Input: "in"}
	g := s.running(s.submit("r1"))
	for attempt := uint64(1); attempt <= 3; attempt++ {
		intent := s.event(run.KindIntent, run.StepStarted{Attempt: attempt, Call: "c", Input: "in", Name: "send", Path: "0", Run: "r1"})
		if _, err := s.commit(g.Session, "r1", g.Attempt, "0", intent); err != nil {
			s.Fatal(err)
		}
		rel := s.event(run.KindReleased, run.Released{Attempt: g.Attempt, Reason: "shutdown", Run: "r1"})
		if _, err := s.commit(g.Session, "r1", g.Attempt, "", rel); err != nil {
			s.Fatal(err)
		}
		g = s.running(s.resume("r1"))
		if d, _, _ := g.Journal.Next(asked); d != run.Ambiguous {
			s.Fatalf("a call that attempt %d cut off is decided as %d, want a person to decide", attempt, d)
		}
		s.review(g, "0")
		if err := s.resolve("r1", run.Again); err != nil {
			s.Fatal(err)
		}
		g = s.running(s.resume("r1"))
		if d, _, _ := g.Journal.Next(asked); d != run.Repeat {
			s.Fatalf("a call that shall run again is decided as %d", d)
		}
		attempt = g.Attempt - 1
	}
}
