package journal_test

import (
	"testing"

	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/journal/journaltest"
	"github.com/rathcluster/rath/session"
)

func TestDirect(t *testing.T) {
	journaltest.TestStore(t, func(*testing.T) (journal.Store, session.Log) {
		log := &session.MemoryLog{}
		return journal.NewStore(log, nil), log
	})
}
