package runtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func testSecondAttempt(s *suite) {
	before := s.other("before")
	g := before.running(before.submit("r1"))
	v := before.step(g, g.Session, "0", "one")
	g2 := s.running(s.resume("r1"))
	if g2.Attempt != 2 || g2.Epoch <= g.Epoch {
		s.Errorf("attempt %d, epoch %d after attempt 1, epoch %d", g2.Attempt, g2.Epoch, g.Epoch)
	}
	d, step, err := g2.Journal.Next(run.StepRequest{Path: "0", Kind: run.StepModel, Name: "writer", Input: "in"})
	if d != run.Replay || err != nil || step.Session.Ref() != v.Ref() {
		s.Fatalf("the recorded step is decided as %d, %v, %v", d, step, err)
	}
	if l, ok := step.Session.Link(); !ok || l != must(v.Link()) {
		s.Errorf("the recorded value is %+v, want %+v", l, must(v.Link()))
	}
	if l, ok := g2.Base.Link(); !ok || l != must(g.Base.Link()) {
		s.Errorf("the base of attempt 2 is %+v, want that of attempt 1, %+v", l, must(g.Base.Link()))
	}
	if !g2.Started.Equal(g.Started) {
		s.Errorf("attempt 2 says the run started at %v, attempt 1 at %v", g2.Started, g.Started)
	}
	d, _, err = g2.Journal.Next(run.StepRequest{Path: "0", Kind: run.StepModel, Name: "writer", Input: "another"})
	s.wantErr("another question", err, run.ErrMismatch)
	if d != run.Mismatch {
		s.Errorf("another question is decided as %d", d)
	}
	s.step(g2, g2.Session, "1", "two")
}

func testSuperseded(s *suite) {
	g := s.running(s.submit("r1"))
	after := s.other("after")
	g2 := after.running(after.resume("r1"))
	if g2.Attempt != 2 {
		s.Fatalf("claimed as attempt %d", g2.Attempt)
	}
	_, err := s.commit(g.Session, "r1", 1, "0", s.row("r1", 1, "0", "zombie")...)
	if !errors.Is(err, session.ErrConflict) && !errors.Is(err, run.ErrSuperseded) {
		s.Fatalf("the zombie's step: %v, want a conflict", err)
	}
	v := after.step(g2, g2.Session, "0", "one")
	_, err = s.commit(g.Session, "r1", 1, "0", s.row("r1", 1, "0", "zombie")...)
	s.wantErr("the zombie's next step", err, run.ErrSuperseded)
	d := last[run.StepCompleted](s, s.home, run.KindLate)
	if d.Attempt != 1 || d.Path != "0" || d.Row {
		s.Errorf("the late outcome is kept as %+v", d)
	}
	row, err := session.DecodeChunk(session.Event{Kind: session.KindChunk, Schema: session.Schema, Data: d.Value})
	if err != nil || row.Text() != "zombie" {
		s.Errorf("the late outcome says %q, %v", row.Text(), err)
	}
	// Whoever goes on finds the recorded step and nothing of the zombie.
	last := s.other("last")
	g3 := last.running(last.resume("r1"))
	s.wantTexts("the session", g3.Session, texts(v)...)
	if st := g3.Journal.Step("0"); st == nil || st.Attempt != 2 {
		s.Errorf("step 0 is recorded as %+v, want attempt 2", st)
	}
	last.step(g3, g3.Session, "1", "two")
}

func testPoison(s *suite) {
	s.running(s.other("n").submit("r1"))
	s.other("x").running(s.other("x").resume("r1"))
	n := s.other("y")
	g := n.running(n.resume("r1"))
	v := n.step(g, g.Session, "0", "one") // progress starts the count again
	for i := range run.MaxClaims {
		n := s.other(fmt.Sprint("n", i))
		g = n.running(n.resume("r1"))
	}
	_ = v
	p := s.must(s.resume("r1"))
	if p.State != run.NeedsReview || p.Record.Review == nil || p.Record.Review.Code != run.CodePoison {
		s.Fatalf("claim %d without progress: %s, %+v", run.MaxClaims+1, p.State, p.Record.Review)
	}
	if err := s.resolve("r1", run.Again); err != nil {
		s.Fatal(err)
	}
	again := s.running(s.resume("r1"))
	if again.Attempt != g.Attempt+1 {
		s.Errorf("claimed as attempt %d after %d", again.Attempt, g.Attempt)
	}
}

func testFollow(s *suite) {
	g := s.running(s.submit("r1"))
	ctx, cancel := context.WithTimeout(s.Context(), 20*time.Second)
	defer cancel()
	l := must(g.Session.Link())
	heard := make(chan session.Entry)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(heard)
		for e, err := range s.store.Follow(ctx, s.home, session.Position{Seq: l.Seq, Hash: l.Hash, Token: l.Token}) {
			if err != nil {
				if ctx.Err() == nil {
					s.Errorf("Follow: %v", err)
				}
				return
			}
			select {
			case heard <- e:
			case <-ctx.Done():
				return
			}
		}
	})
	v := g.Session
	for i := range 5 {
		v = s.step(g, v, run.Path(fmt.Sprint(i)), "x")
		if e, ok := <-heard; !ok || e.At.Seq != l.Seq+uint64(i)+1 {
			s.Fatalf("Follow yields commit %d, %v; want %d", e.At.Seq, ok, l.Seq+uint64(i)+1)
		}
	}
	cancel()
	wg.Wait()
}

func testConcurrency(s *suite) {
	const n = 8
	var wg sync.WaitGroup
	granted := make([]*run.ClaimResult, n)
	for i := range n {
		wg.Go(func() {
			g, err := s.submit("r1")
			switch {
			case err == nil && g.State == run.Running:
				granted[i] = g
			case err == nil || !errors.Is(err, run.ErrState):
				s.Errorf("racing claim: %+v, %v", g, err)
			}
		})
	}
	wg.Wait()
	var g *run.ClaimResult
	for _, one := range granted {
		if one != nil && g != nil {
			s.Fatal("two claims of one run were granted")
		}
		if one != nil {
			g = one
		}
	}
	if g == nil {
		s.Fatal("no claim was granted")
	}
	recorded := make([]bool, n)
	for i := range n {
		wg.Go(func() {
			a, err := s.commit(g.Session, "r1", 1, "0", s.row("r1", 1, "0", fmt.Sprint("writer ", i))...)
			if err != nil {
				s.Errorf("racing commit: %v", err)
			}
			recorded[i] = a.Recorded == nil
			if got := a.Session.Len(); got != 2 {
				s.Errorf("racing commit is answered with %d chunks", got)
			}
		})
	}
	wg.Wait()
	wins := 0
	for _, won := range recorded {
		if won {
			wins++
		}
	}
	if wins != 1 {
		s.Errorf("one step was recorded %d times", wins)
	}
	if got := len(s.entries(s.home)); got != 2 {
		s.Errorf("%d commits, want 2", got)
	}
}
