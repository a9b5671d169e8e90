package session

import (
	"errors"
	"fmt"
	"time"
)

// The events around an archive. They change no content.
const (
	// KindArchived fences a log: only KindRestored can follow it. In a purged log it is
	// the only commit left, the tombstone, whose number and hash stand for all the
	// commits before it.
	KindArchived = "session.archived"
	// KindRestored ends the archival: the session's commits were restored, or never
	// purged.
	KindRestored = "session.restored"
)

// ErrArchived is returned for an archived session. It is an *ArchivedError.
var ErrArchived = errors.New("session: archived")

// ArchivedError reports when a session was archived and how to restore it.
// errors.Is(err, ErrArchived) holds.
type ArchivedError struct {
	Key  Key
	File string    // name of the archive
	Time time.Time // when
	// Partial is set during the restoration of the session.
	Partial bool
	// Fenced is set while all commits are in the log: it is not purged yet, and the
	// archive may not exist yet.
	Fenced bool
}

// Error names the session, the cause and the remedy.
func (e *ArchivedError) Error() string {
	if e.Partial {
		return fmt.Sprintf("session %s is being restored from its archive and is not complete yet; "+
			"wait for \"rath cluster import\" to end, or run it again", e.Key.ID)
	}
	if e.Fenced {
		return fmt.Sprintf("session %s is being archived since %s, and accepts no commit until the end; if the prune was interrupted, "+
			"finish it with \"rath cluster prune --older-than AGE\", or release the session with \"rath cluster prune --older-than AGE --keep %s=forever\"",
			e.Key.ID, e.Time.UTC().Format(time.RFC3339), e.Key.Tenant)
	}
	return fmt.Sprintf("session %s was archived at %s; bring it back with: rath cluster import %s",
		e.Key.ID, e.Time.UTC().Format(time.RFC3339), e.File)
}

// Is reports whether target is ErrArchived.
func (e *ArchivedError) Is(target error) bool { return target == ErrArchived }

// Archived returns nil, or the reason why the session is read-only.
func (s Session) Archived() *ArchivedError { return s.val().archived }
