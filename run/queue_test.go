package run_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// stage is a store over a log, with short forms of what tests ask of it.
type stage struct {
	t   *testing.T
	log *session.MemoryLog
	run.Store
}

func newStage(t *testing.T) *stage {
	log := &session.MemoryLog{}
	return &stage{t, log, run.Direct(log, &run.DirectOptions{Incarnation: "first"})}
}

// next puts another incarnation in the place of the one before.
func (s *stage) next(incarnation string) {
	s.Store = run.Direct(s.log, &run.DirectOptions{Incarnation: incarnation})
}

// claim claims a run at home, and submits it unless a log holds it.
func (s *stage) claim(k session.Key, id run.ID, change ...func(*run.Claim)) *run.ClaimResult {
	s.t.Helper()
	c := run.Claim{Session: k, Home: k, Run: id, Task: &run.Task{ID: id, Workflow: "w", Session: k}, Open: session.Opening{Kind: session.OpenLeaf}}
	for _, f := range change {
		f(&c)
	}
	g, err := s.Claim(s.t.Context(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

func (s *stage) record(k session.Key, g *run.ClaimResult, id run.ID, events ...session.Event) run.Ack {
	s.t.Helper()
	a, err := s.Commit(s.t.Context(), run.Batch{Session: k, Run: id, Attempt: g.Attempt, Events: events})
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *stage) apply(sig run.Signal) {
	s.t.Helper()
	if err := s.Apply(s.t.Context(), sig); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) last(k session.Key) session.Entry {
	s.t.Helper()
	e, err := s.log.Last(s.t.Context(), k)
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

// ended returns the end of a run that the last commit of a log holds.
func (s *stage) ended(k session.Key, id run.ID) run.Ended {
	s.t.Helper()
	for _, e := range s.last(k).Commit.Events {
		if e.Kind != run.KindEnded {
			continue
		}
		if v, err := run.Read[run.Ended](e); err == nil && v.Run == id {
			return v
		}
	}
	return run.Ended{}
}

func encode(t *testing.T, kind string, payload any) session.Event {
	t.Helper()
	e, err := run.NewEvent(kind, payload)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestBehindClosed: a run that waits for a session which another run made, and
// closed, ends; it would wait for ever.
func TestBehindClosed(t *testing.T) {
	home, child := session.Key{Tenant: "t", ID: "home"}, session.Key{Tenant: "t", ID: "child"}
	for _, how := range []string{"adopted", "cancelled with its run"} {
		t.Run(how, func(t *testing.T) {
			s := newStage(t)
			r := s.claim(home, "r")
			base, ok := r.Session.Link()
			if !ok {
				t.Fatal("the home session is not committed")
			}
			of := s.claim(child, "r", func(c *run.Claim) {
				c.Home, c.Task, c.Attempt = home, nil, r.Attempt
				c.Open = session.Opening{Kind: session.OpenFork, Parents: []session.Link{base}, Run: "r", Step: "0"}
			})
			if g := s.claim(child, "late"); g.State != run.Queued {
				t.Fatalf("the run behind it is %s", g.State)
			}
			if how == "adopted" {
				s.record(child, of, "r", session.ClosedEvent(session.Closing{By: home, State: session.ClosedAdopted}))
			} else {
				s.apply(run.Signal{To: child, Run: "r", Cancel: &run.CancelRequested{By: "r", Reason: "over", Run: "r"}})
			}
			g := s.claim(child, "late", func(c *run.Claim) { c.Task = nil })
			if e := s.ended(child, "late"); g.State != run.Failed || e.Code != run.CodeClosed {
				t.Errorf("the run behind it is %s, ended as %+v", g.State, e)
			}
		})
	}
}

// TestBehindBranch: nothing follows the run of a branch, so no other one queues
// behind it.
func TestBehindBranch(t *testing.T) {
	home, k := session.Key{Tenant: "t", ID: "home"}, session.Key{Tenant: "t", ID: "branch"}
	s := newStage(t)
	base, _ := s.claim(home, "r").Session.Link()
	branch := run.Branch{Ancestors: []run.Ancestor{{Run: "r", Session: home.ID}}, Base: base, Name: "b", Path: "0.b", Root: home.ID}
	g := s.claim(k, "branch", func(c *run.Claim) {
		c.Task.Branch = &branch
		c.Open = session.Opening{Kind: session.OpenFork, Parents: []session.Link{base}, Run: "r", Step: "0.b"}
	})
	if g.State != run.Running {
		t.Fatalf("the branch is %s", g.State)
	}
	_, err := s.Claim(t.Context(), run.Claim{Session: k, Home: k, Run: "late", Task: &run.Task{ID: "late", Workflow: "w", Session: k}})
	if !errors.Is(err, session.ErrClosed) {
		t.Errorf("a run behind that of a branch: %v", err)
	}
}

// TestCancelledAndReleased: a run that somebody cancelled before its attempt gave
// it back is cancelled, also if its deadline passes before anybody takes it up.
func TestCancelledAndReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k := newStage(t), session.Key{Tenant: "t", ID: "home"}
		g := s.claim(k, "r", func(c *run.Claim) { c.Task.Deadline = time.Now().Add(time.Hour) })
		s.apply(run.Signal{To: k, Run: "r", Cancel: &run.CancelRequested{Reason: "enough"}})
		s.record(k, g, "r", encode(t, run.KindReleased, run.Released{Attempt: g.Attempt, Reason: "shutdown", Run: "r", Workflow: "w"}))
		time.Sleep(time.Hour)
		s.apply(run.Signal{To: k, Tick: true})
		if e := s.ended(k, "r"); e.State != run.Cancelled || e.Code != run.CodeCancelled || e.Error != "enough" {
			t.Errorf("the run ended as %+v", e)
		}
	})
}

// TestReleaseOffers: who releases a session from quarantine offers the run whose
// attempt was cut off meanwhile: nobody executes it, although the log says so.
func TestReleaseOffers(t *testing.T) {
	k := session.Key{Tenant: "t", ID: "home"}
	for _, executes := range []bool{false, true} {
		s := newStage(t)
		s.claim(k, "r")
		s.apply(run.Signal{To: k, Quarantine: &run.Quarantined{Reason: "odd"}})
		if !executes {
			s.next("second")
			if g := s.claim(k, "r", func(c *run.Claim) { c.Task = nil }); g.State != run.Queued {
				t.Fatalf("in quarantine the run is %s", g.State)
			}
		}
		s.apply(run.Signal{To: k, Quarantine: &run.Quarantined{Reason: "fine", Released: true}})
		work, err := run.Derive(s.last(k))
		if err != nil {
			t.Fatal(err)
		}
		offered := slices.ContainsFunc(work, func(w run.Work) bool { return w.Task != nil && w.Task.ID == "r" })
		if offered == executes {
			t.Errorf("the run executes: %v, is offered: %v", executes, offered)
		}
	}
}
