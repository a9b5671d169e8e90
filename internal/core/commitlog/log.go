package commitlog

import (
	"context"
	"iter"

	"github.com/rathcluster/rath/session"
)

// Position is the position of a log after a commit. Token is the backend's own
// sequence, which its compare-and-set uses. The zero Position is the empty log.
type Position struct {
	Seq   uint64
	Token uint64
	Hash  session.Hash
}

// Made returns s linked to the commit at the position.
func (p Position) Made(s session.Session) session.Session { return s.MadeBy(p.Seq, p.Hash, p.Token) }

// Log is the event store: one append-only sequence of commits per session. Its methods
// may be called concurrently, even for one session. Compare-and-set alone decides which
// writer of a session may append; there is no other lock.
type Log interface {
	// Append stores c as the successor of at and returns the position of c once c is
	// durable. at is the end of the caller's fold, the zero Position for the first
	// commit; c.Seq and c.Prev must continue it. Append reads c until it returns, and
	// neither changes nor keeps it.
	//
	// After ErrUnavailable c may be stored or not: the caller reads the log before
	// it writes again. After any other error c is not stored and will not be:
	//   - ErrConflict: the log does not end at at. The caller has lost the session
	//     and must stop writing.
	//   - ErrTooLarge: c can never be stored.
	//   - ErrForeign: c does not continue at.
	//
	// Appending the same c again returns the first position, or ErrConflict. If ctx
	// ends once c may have arrived, Append continues until it learns the outcome, for
	// at most half a minute.
	Append(ctx context.Context, at Position, c Commit) (Position, error)
	// Read yields the commits after a position in their order, up to the end of the log
	// at the time of the call or later. after is the zero Position or one that this log
	// returned. For a session without commits it yields no entries.
	//
	// All readers skip stored bytes that are no valid successor of the previous commit.
	// An error is yielded last; for a purged log it is an *ArchivedError. The caller
	// may stop early, and may call the log between two entries. Entries are shared with
	// other readers: their bytes must not be changed.
	Read(ctx context.Context, k session.Key, after Position) iter.Seq2[Entry, error]
	// Last returns the newest commit. It returns an error that wraps ErrNotFound or,
	// for a purged log, an *ArchivedError. It answers neither from a cache nor from a
	// replica that lags. The Entry is shared like those of Read.
	Last(ctx context.Context, k session.Key) (Entry, error)
}

// Snapshotter is an optional interface of a Log: it stores one state per session, so
// that the activation of a long session reads only the commits after it. Its methods
// may be called concurrently.
//
// A snapshot is a cache: it may be lost at any time, which only costs time, and a
// reader uses it only if the log contains its position. Save and SavePage do not keep
// the caller's slice; Load and LoadPage return a slice that the caller owns.
type Snapshotter interface {
	// Save replaces the snapshot of a session, unless the stored one has a later
	// position.
	Save(ctx context.Context, k session.Key, at Position, state []byte) error
	// Load returns the snapshot of a session, or an error that wraps ErrNotFound.
	Load(ctx context.Context, k session.Key) (at Position, state []byte, err error)
	// SavePage stores an immutable part that states refer to by its digest. It is
	// idempotent.
	SavePage(ctx context.Context, t session.Tenant, digest string, page []byte) error
	// LoadPage returns a part, or an error that wraps ErrNotFound.
	LoadPage(ctx context.Context, t session.Tenant, digest string) ([]byte, error)
}
