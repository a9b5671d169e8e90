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

// A purge of an archived session leaves one message on its subject: the commit with
// session.archived, the tombstone. It has no predecessor, but it keeps everybody from
// beginning the session again, and its number and hash stand for the commits before it.
//
// A restore stores the session's commits behind the tombstone, from the first to a copy of
// the tombstone itself, each with a header that holds their number. Until all are stored
// the log is archived for every reader.

// HeaderRestored is the number of commits of a restored log.
const HeaderRestored = "Rath-Restored"

// HeaderFresh marks a session restored to a store that never had it: no reader published
// its lineage here.
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

// TombstoneOf reads a message as the commit that archives a session, which may be the last
// one left of its log.
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

// RestoredOf returns the number of commits of the restore that stored a message, zero for
// any other message.
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

// Archived returns a *session.ArchivedError if a session is archived, read from the
// stream's leader.
func (c *Logs) Archived(ctx context.Context, k session.Key) error {
	return journal.NewValues(c.Log()).Archived(ctx, k)
}
