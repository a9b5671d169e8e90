package session

import "errors"

var (
	// ErrConflict is returned by Append when another writer has extended the log. The
	// writer has lost the session and must stop.
	ErrConflict = errors.New("session: another writer extended the log")
	// ErrStale is returned for a write that extends a version that is no longer the
	// newest.
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
	// ErrTenant is returned for an operation across tenants.
	ErrTenant = errors.New("session: crosses tenants")
	// ErrClosed is returned for a write to a session that ended.
	ErrClosed = errors.New("session: closed")
)
