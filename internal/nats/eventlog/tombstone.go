package eventlog

import (
	"bytes"
	"context"
	"strconv"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/session"
)

// Of an archived session that was purged one message is left on its subject:
// the commit with session.archived, the tombstone. It is no successor of
// anything, but it keeps everybody from beginning the session again, and its
// number and hash stand for the commits before it.
//
// When a session is brought back its commits are stored behind the tombstone,
// from the first to a copy of the tombstone itself, each with a header that says
// how many there are. Until all are there the log is archived for every reader.

// HeaderRestored is the number of commits that a log brought back has.
const HeaderRestored = "Rath-Restored"

// HeaderFresh marks what was brought back to where it had never been: no reader
// published its lineage here.
const HeaderFresh = "Rath-Fresh"

// tombstone is the commit that archives a session.
type tombstone struct {
	commit commitlog.Commit
	Seq    uint64
	Hash   session.Hash
	why    *session.ArchivedError
}

// at is the position of the tombstone's message.
func (t tombstone) at(m conn.Message) commitlog.Position {
	return commitlog.Position{Seq: t.Seq, Token: m.Seq, Hash: t.Hash}
}

// TombstoneOf reads a message as the commit that archives a session, which may
// be all that is left of its log.
func TombstoneOf(k session.Key, m conn.Message) (t tombstone, ok bool) {
	if !bytes.Contains(m.Data, []byte(session.KindArchived)) {
		return t, false
	}
	c, err := commitlog.Decode(m.Data)
	if err != nil || c.Key != k || c.Seq < 2 {
		return t, false
	}
	why, ok := commitlog.Tombstone(c)
	return tombstone{c, c.Seq, commitlog.HashOf(m.Data), why}, ok
}

// RestoredOf returns how many commits are being brought back, zero for a
// message that is no part of that.
func RestoredOf(m conn.Message) uint64 {
	said := m.Header.Get(HeaderRestored)
	if said == "" {
		return 0
	}
	n, err := strconv.ParseUint(said, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Archived returns a *session.ArchivedError if a session is archived, as the
// stream's leader says.
func (c *Logs) Archived(ctx context.Context, k session.Key) error {
	return journal.NewValues(c.Log()).Archived(ctx, k)
}
