package journal_test

import (
	"flag"
	"testing"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/journal/journaltest"
)

// TestProtocol plays the transcripts that say how a session's log decides.
func TestProtocol(t *testing.T) {
	update := flag.Lookup("update").Value.String() == "true"
	journaltest.TestProtocol(t, "testdata/protocol", update, func(_ *testing.T, log commitlog.Log, incarnation string) journal.Store {
		return journal.NewStore(log, &journal.StoreOptions{Incarnation: incarnation})
	})
}
