package session

import (
	"errors"
	"fmt"
	"time"
)

// The events around an archive. They change no content.
const (
	// KindArchived fences a log: nothing but KindRestored follows it. Of a log
	// that was purged it is the only commit left, the tombstone, whose number
	// and hash stand for all the commits before it.
	KindArchived = "session.archived"
	// KindRestored says that the session goes on: its commits were brought
	// back, or never purged.
	KindRestored = "session.restored"
)

// ErrArchived is returned for a session that was archived. It is an
// *ArchivedError.
var ErrArchived = errors.New("session: archived")

// ArchivedError says when a session was archived and how it comes back.
// errors.Is(err, ErrArchived) holds.
type ArchivedError struct {
	Key  Key
	File string    // name of the archive
	Time time.Time // when
	// Partial is set while the session is being brought back.
	Partial bool
	// Fenced is set while all commits are in the log: it is not purged yet, and
	// the archive need not be there yet.
	Fenced bool
}

// Error names the session, the cause and the remedy.
func (e *ArchivedError) Error() string {
	if e.Partial {
		return fmt.Sprintf("session %s is being brought back from its archive, and not all of it is there yet; "+
			"wait for \"rath cluster import\" to end, or run it again", e.Key.ID)
	}
	if e.Fenced {
		return fmt.Sprintf("session %s is being archived since %s, and takes nothing until that has ended; if it was cut off, "+
			"finish it with \"rath cluster prune --older-than AGE\", or let the session go on with \"rath cluster prune --older-than AGE --keep %s=forever\"",
			e.Key.ID, e.Time.UTC().Format(time.RFC3339), e.Key.Tenant)
	}
	return fmt.Sprintf("session %s was archived at %s; bring it back with: rath cluster import %s",
		e.Key.ID, e.Time.UTC().Format(time.RFC3339), e.File)
}

// Is reports whether target is ErrArchived.
func (e *ArchivedError) Is(target error) bool { return target == ErrArchived }

// Archived returns nil, or why nothing can be written to the session.
func (s Session) Archived() *ArchivedError { return s.val().archived }
