package run_test

import (
	"flag"
	"testing"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/run/runtest"
	"github.com/rathcluster/rath/session"
)

// TestProtocol plays the transcripts that say how a session's log decides.
func TestProtocol(t *testing.T) {
	update := flag.Lookup("update").Value.String() == "true"
	runtest.TestProtocol(t, "testdata/protocol", update, func(_ *testing.T, log session.Log, incarnation string) run.Store {
		return run.Direct(log, &run.DirectOptions{Incarnation: incarnation})
	})
}
