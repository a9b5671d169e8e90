// Package journaltest is the suite that every journal.Store must pass.
//
// A store's own tests call [TestProtocol], which plays the transcripts of a folder on
// several nodes, and [TestStore], which makes concurrent requests. A store must test
// its movement between nodes, its draining and its passivation itself.
package journaltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestStore checks the contract of journal.Store about concurrent requests, ended
// contexts and followers. open returns a store and the empty log that it writes to; it
// is called once per subtest and may register its own cleanup.
func TestStore(t *testing.T, open func(t *testing.T) (journal.Store, commitlog.Log)) {
	t.Helper()
	for name, test := range map[string]func(*suite){"follow": testFollow, "concurrency": testConcurrency, "ended context": testContext} {
		t.Run(name, func(t *testing.T) {
			store, log := open(t)
			test(&suite{T: t, store: store, log: log, home: session.Key{Tenant: tenant, ID: "home"}})
		})
	}
}

type suite struct {
	*testing.T
	store journal.Store
	log   commitlog.Log
	home  session.Key
}

func (s *suite) submit(id run.ID) (*journal.ClaimResult, error) {
	return s.store.Claim(s.Context(), journal.Claim{
		Session: s.home, Home: s.home, Run: id, Task: &journal.Task{ID: id, Workflow: "work", Session: s.home},
		Events: []session.Event{session.ChunkEvent(session.UserText("hello"))},
	})
}

// running submits a run that executes here.
func (s *suite) running() *journal.ClaimResult {
	s.Helper()
	g, err := s.submit("r1")
	if err != nil || g.State != run.Running {
		s.Fatalf("Claim: %+v, %v", g, err)
	}
	return g
}

// commit records a model step of run r1 with a text.
func (s *suite) commit(at session.Session, path run.Path, text string) (journal.Ack, error) {
	s.Helper()
	done, err := journal.NewEvent(journal.KindStepCompleted, journal.StepCompleted{Attempt: 1, Input: "in", Kind: journal.StepModel, Name: "writer", Path: path, Row: true, Run: "r1"})
	if err != nil {
		s.Fatal(err)
	}
	return s.store.Commit(s.Context(), journal.Batch{
		Session: s.home, Run: "r1", Attempt: 1, Path: path, Base: at.Ref().Version, Events: []session.Event{session.ChunkEvent(session.AssistantText(text)), done},
	})
}

func testFollow(s *suite) {
	g := s.running()
	l, _ := g.Session.Link()
	heard := make(chan uint64, 8)
	stop := s.store.Follow(s.home, commitlog.Position{Seq: l.Seq, Hash: l.Hash, Token: l.Token}, func(e *commitlog.Entry) { heard <- e.At.Seq })
	v := g.Session
	for i := range 5 {
		a, err := s.commit(v, run.Path(fmt.Sprint(i)), "x")
		if err != nil {
			s.Fatal(err)
		}
		v = a.Session
		select {
		case seq := <-heard:
			if seq != l.Seq+uint64(i)+1 {
				s.Fatalf("it took commit %d, want %d", seq, l.Seq+uint64(i)+1)
			}
		case <-time.After(20 * time.Second):
			s.Fatalf("commit %d was not passed on", l.Seq+uint64(i)+1)
		}
	}
	stop()
	if _, err := s.commit(v, "5", "x"); err != nil {
		s.Fatal(err)
	}
	if len(heard) > 0 {
		s.Error("a follower took a commit after it was stopped")
	}
}

func testConcurrency(s *suite) {
	const n = 8
	var wg sync.WaitGroup
	granted := make([]*journal.ClaimResult, n)
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
	var g *journal.ClaimResult
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
			a, err := s.commit(g.Session, "0", fmt.Sprint("writer ", i))
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
	if e, err := s.log.Last(s.Context(), s.home); err != nil || e.At.Seq != 2 {
		s.Errorf("%d commits, want 2 (%v)", e.At.Seq, err)
	}
}

func testContext(s *suite) {
	g := s.running()
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if err := s.store.Apply(ctx, journal.Signal{To: s.home, Run: "r1", Cancel: &journal.CancelRequested{Reason: "x"}}); err == nil {
		s.Log("a signal with an ended context was recorded: allowed, it is durable")
	} else if !errors.Is(err, context.Canceled) {
		s.Errorf("a signal with an ended context: %v", err)
	} else if _, err := s.commit(g.Session, "0", "one"); err != nil {
		s.Errorf("the request of one caller cost another one its session: %v", err)
	}
}
