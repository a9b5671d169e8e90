package runtest

import (
	"fmt"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// again applies a signal, and then the same one twice more: here, and through
// another node. Only the first appends anything, and none of them fails.
func (s *suite) again(what string, sig run.Signal) {
	s.Helper()
	if err := s.store.Apply(s.Context(), sig); err != nil {
		s.Fatalf("%s: %v", what, err)
	}
	s.sent(what, sig)
}

// sent demands that sending a signal which was taken before changes nothing and
// succeeds.
func (s *suite) sent(what string, sig run.Signal) {
	s.Helper()
	s.unchanged(what+", sent again", s.home, func() {
		for _, store := range []run.Store{s.store, s.other("another").store} {
			if err := store.Apply(s.Context(), sig); err != nil {
				s.Errorf("%s, sent again: %v", what, err)
			}
		}
	})
}

func (s *suite) says(to run.ID, id, text string) run.Signal {
	return run.Signal{To: s.home, Run: to, Received: &run.SignalReceived{By: "ann", ID: id, Kind: run.Message, Run: to, Text: text}}
}

// testAgain: a signal with an id may be sent again, also when the run that it
// was for has ended, or there never was one.
func testAgain(s *suite) {
	g := s.running(s.submit("r1"))
	inRun := s.says("", "m1", "one")
	s.again("a message to the session of a run", inRun)
	toRun := s.says("r1", "m2", "two")
	s.again("a message to a run", toRun)
	budget := run.Signal{To: s.home, Run: "r1", Rebudget: &run.Rebudgeted{Budget: run.Budget{Tokens: 5}, ID: "b1", Run: "r1"}}
	s.again("a budget", budget)
	s.review(g, "")
	decided := run.Signal{To: s.home, Run: "r1", Resolve: &run.Resolved{Decision: run.Again, ID: "d1", Reason: "looked"}}
	s.again("a decision", decided)
	g = s.running(s.resume("r1"))
	if _, err := s.end(g, g.Session, run.Succeeded); err != nil {
		s.Fatal(err)
	}
	for what, sig := range map[string]run.Signal{
		"a message to the session, after the run": inRun, "a message to the run, after it": toRun,
		"a budget, after the run": budget, "a decision, after the run": decided,
	} {
		s.sent(what, sig)
	}
	s.wantErr("another message to a run that has ended", s.store.Apply(s.Context(), s.says("r1", "m9", "late")), run.ErrState)

	idle := s.says("", "m3", "three")
	s.again("a message to an idle session", idle)
	g = s.running(s.submit("r2"))
	s.sent("a message to the session, in the next run", idle)
	s.wantTexts("the session", g.Session, "hello", "one", "two", "three")
	// What names a run is told from what another run got under the same id.
	if err := s.store.Apply(s.Context(), s.says("r2", "m2", "two again")); err != nil {
		s.Errorf("a message to another run, with an id of the first: %v", err)
	}
	if got := last[run.SignalReceived](s, s.home, run.KindReceived); got.Text != "two again" {
		s.Errorf("the last message says %q", got.Text)
	}
	set := run.Signal{To: s.home, Run: "r2", Quarantine: &run.Quarantined{ID: "q1", Reason: "odd"}}
	s.again("a quarantine", set)
	s.again("its end", run.Signal{To: s.home, Run: "r2", Quarantine: &run.Quarantined{ID: "q2", Reason: "fine", Released: true}})
	s.sent("the quarantine, after its end", set)
	s.review(g, "")
	stop := run.Signal{To: s.home, Run: "r2", Cancel: &run.CancelRequested{ID: "c1", Reason: "enough", Run: "r2"}}
	s.again("a cancel that ends the run", stop)
	s.wantErr("another cancel", s.cancel(s.home, "r2"), run.ErrState)

	// What is kept of them is bounded: the oldest are forgotten.
	for i := range run.MaxHeard {
		if err := s.store.Apply(s.Context(), s.says("", fmt.Sprint("x", i), "x")); err != nil {
			s.Fatal(err)
		}
	}
	s.sent("the oldest that is kept", s.says("", "x0", "x"))
	if err := s.store.Apply(s.Context(), idle); err != nil {
		s.Fatal(err)
	}
	if got := s.kinds(s.home); got[len(got)-1] != session.KindChunk {
		s.Errorf("what is forgotten is taken anew, the log ends with %s", got[len(got)-1])
	}
}
