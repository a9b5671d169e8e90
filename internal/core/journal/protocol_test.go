package journal_test

import (
	"flag"
	"testing"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/journal/journaltest"
)

// TestProtocol plays the transcripts of the decisions of a session's log.
func TestProtocol(t *testing.T) {
	update := flag.Lookup("update").Value.String() == "true"
	journaltest.TestProtocol(t, "testdata/protocol", update, func(_ *testing.T, log commitlog.Log, incarnation string) journal.Store {
		return journal.NewStore(log, &journal.StoreOptions{Incarnation: incarnation})
	})
}
