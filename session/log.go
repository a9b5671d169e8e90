package session

import (
	"context"
	"errors"
	"iter"
)

var (
	// ErrConflict is returned by Append when another writer extended the log.
	// The writer that gets it has lost the session and must stop.
	ErrConflict = errors.New("session: another writer extended the log")
	// ErrStale is returned for a write that extends a version which is no
	// longer the newest.
	ErrStale = errors.New("session: not the newest version")
	// ErrNotFound is returned for a session without commits, or a version
	// that it does not have.
	ErrNotFound = errors.New("session: not found")
	// ErrUnavailable is returned by Append when it could not learn in time
	// whether the commit was stored.
	ErrUnavailable = errors.New("session: log not available")
	// ErrTooOld marks data of a later release than this one.
	ErrTooOld = errors.New("session: written by a later release")
	// ErrTooLarge marks a commit over MaxCommit.
	ErrTooLarge = errors.New("session: commit too large")
	// ErrForeign marks bytes that are not a valid commit where one should be.
	ErrForeign = errors.New("session: not a commit of this log")
	// ErrTenant is returned when something would cross tenants.
	ErrTenant = errors.New("session: crosses tenants")
	// ErrClosed is returned for a write to a session that ended.
	ErrClosed = errors.New("session: closed")
)

// Log is the event store: one append-only sequence of commits per session.
// Only the writer of a session appends to it. It is safe for concurrent use.
//
// Append stores c as the successor of at, which is the zero Position for the
// first commit; c.Seq and c.Prev must say the same. It returns the position
// of c once c is durable. ErrConflict means that c was not stored and will not
// be, because the log stands elsewhere; ErrUnavailable means that nobody knows
// and that the caller must read the log before it writes again; ErrTooLarge
// that it can't be stored. Append goes on trying when ctx ends only as long as
// its implementation needs to learn the outcome, at most half a minute.
//
// Read yields the commits after a position in their order, up to the end of
// the log as it was when the call began or later, and skips stored bytes that
// are not a valid successor. An error ends the sequence.
//
// Last returns the newest commit, never an outdated one, or ErrNotFound.
type Log interface {
	Append(ctx context.Context, at Position, c Commit) (Position, error)
	Read(ctx context.Context, k Key, after Position) iter.Seq2[Entry, error]
	Last(ctx context.Context, k Key) (Entry, error)
}

// Snapshotter is the optional second ability of a Log: it keeps one saved
// state per session, so that activating a long session reads only the tail.
// A snapshot is a cache: losing one costs time, and what it says is believed
// only if the log agrees with its position.
//
// Save replaces the snapshot of a session. Pages are immutable parts that
// states refer to by digest; SavePage stores one (again is harmless) and
// LoadPage returns it. Load returns ErrNotFound when there is none.
type Snapshotter interface {
	Save(ctx context.Context, k Key, at Position, state []byte) error
	Load(ctx context.Context, k Key) (at Position, state []byte, err error)
	SavePage(ctx context.Context, t Tenant, digest string, page []byte) error
	LoadPage(ctx context.Context, t Tenant, digest string) ([]byte, error)
}
