package run_test

import (
	"testing"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/run/runtest"
	"github.com/rathcluster/rath/session"
)

func TestDirect(t *testing.T) {
	runtest.TestStore(t, func(*testing.T) (run.Store, session.Log) {
		log := &session.MemoryLog{}
		return run.Direct(log, nil), log
	})
}
