package actors_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/journal/journaltest"
	"github.com/rathcluster/rath/session"
)

func TestStore(t *testing.T) {
	journaltest.TestStore(t, func(t *testing.T) (journal.Store, commitlog.Log) {
		log := &commitlog.Memory{}
		return start(t, log, actors.Options{}).Store(), log
	})
}

// The contract holds while sessions come and go at every chance.
func TestStorePassivating(t *testing.T) {
	journaltest.TestStore(t, func(t *testing.T) (journal.Store, commitlog.Log) {
		log := &commitlog.Memory{}
		return start(t, log, actors.Options{Passivate: time.Microsecond, BatchMax: 2}).Store(), log
	})
}

// The contract holds over a log that takes its time, so that requests meet.
func TestStoreSlow(t *testing.T) {
	journaltest.TestStore(t, func(t *testing.T) (journal.Store, commitlog.Log) {
		log := &faults{}
		log.append = func(int, commitlog.Commit) error {
			time.Sleep(time.Duration(rand.N(300)) * time.Microsecond)
			return nil
		}
		return start(t, log, actors.Options{}).Store(), log
	})
}

// TestProtocol: session actors answer as the transcripts of package run say, and
// append the same commits.
func TestProtocol(t *testing.T) {
	const dir = "../internal/core/journal/testdata/protocol"
	nodes := func(o actors.Options) func(*testing.T, commitlog.Log, string) journal.Store {
		return func(t *testing.T, log commitlog.Log, incarnation string) journal.Store {
			o.Incarnation = incarnation
			return start(t, log, o).Store()
		}
	}
	t.Run("resting", func(t *testing.T) {
		journaltest.TestProtocol(t, dir, false, nodes(actors.Options{Passivate: 1000 * time.Hour}))
	})
	t.Run("restless", func(t *testing.T) {
		journaltest.TestRestless(t, dir, nodes(actors.Options{Passivate: time.Microsecond, BatchMax: 2}))
	})
}

// TestAnswering holds that a System answers while its log does not, and after
// its end; that a stuck one does not is shown by package node, with a question
// that hangs.
func TestAnswering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{}
		sys := start(t, log, actors.Options{})
		silent := make(chan struct{})
		log.set(func() { log.append = func(int, commitlog.Commit) error { <-silent; return nil } })
		waiting := make(chan error, 1)
		go func() {
			one := task("r1", key("s1"))
			_, err := sys.Store().Claim(t.Context(), journal.Claim{
				Session: one.Session, Home: one.Session, Run: one.ID, Task: &one, Open: session.Opening{Kind: session.OpenLeaf},
			})
			waiting <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := sys.Answering(ctx); err != nil {
			t.Errorf("while the log is silent: %v", err)
		}
		close(silent)
		<-waiting
		stop(t, sys)
		if err := sys.Answering(t.Context()); err != nil {
			t.Errorf("after the end: %v", err)
		}
	})
}
