package actors_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/run/runtest"
	"github.com/rathcluster/rath/session"
)

func TestStore(t *testing.T) {
	runtest.TestStore(t, func(t *testing.T) (run.Store, session.Log) {
		log := &session.MemoryLog{}
		return start(t, log, actors.Options{}).Store(), log
	})
}

// The contract holds while sessions come and go at every chance.
func TestStorePassivating(t *testing.T) {
	runtest.TestStore(t, func(t *testing.T) (run.Store, session.Log) {
		log := &session.MemoryLog{}
		return start(t, log, actors.Options{Passivate: time.Microsecond, BatchMax: 2}).Store(), log
	})
}

// The contract holds over a log that takes its time, so that requests meet.
func TestStoreSlow(t *testing.T) {
	runtest.TestStore(t, func(t *testing.T) (run.Store, session.Log) {
		log := &faults{}
		log.append = func(int, session.Commit) error {
			time.Sleep(time.Duration(rand.N(300)) * time.Microsecond)
			return nil
		}
		return start(t, log, actors.Options{}).Store(), log
	})
}
