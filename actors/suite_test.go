package actors_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/journal/journaltest"
)

func TestStore(t *testing.T) {
	journaltest.TestStore(t, func(t *testing.T) (journal.Store, commitlog.Log) {
		log := &commitlog.Memory{}
		return start(t, log, actors.Options{}).Store(), log
	})
}

// The contract holds while sessions are passivated at every opportunity.
func TestStorePassivating(t *testing.T) {
	journaltest.TestStore(t, func(t *testing.T) (journal.Store, commitlog.Log) {
		log := &commitlog.Memory{}
		return start(t, log, actors.Options{Passivate: time.Microsecond, BatchMax: 2}).Store(), log
	})
}

// The contract holds over a slow log, which makes requests meet.
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

// TestProtocol: session actors answer as the transcripts of package run specify, and
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
