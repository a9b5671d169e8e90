package journal_test

import (
	"testing"

	"github.com/rathcluster/rath/internal/commitlog"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/journal/journaltest"
)

func TestDirect(t *testing.T) {
	journaltest.TestStore(t, func(*testing.T) (journal.Store, commitlog.Log) {
		log := &commitlog.Memory{}
		return journal.NewStore(log, nil), log
	})
}
