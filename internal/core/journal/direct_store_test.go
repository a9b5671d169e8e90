package journal_test

import (
	"testing"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/journal/journaltest"
)

func TestDirect(t *testing.T) {
	journaltest.TestStore(t, func(*testing.T) (journal.Store, commitlog.Log) {
		log := &commitlog.Memory{}
		return journal.NewStore(log, nil), log
	})
}
