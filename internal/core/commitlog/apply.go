package commitlog

import (
	"github.com/rathcluster/rath/session"
)

// ApplyCommit folds the session events of a commit and links the result to it. It skips
// events of other namespaces.
func ApplyCommit(s session.Session, e Entry, resolve func(session.Link) (session.Session, error)) (session.Session, error) {
	next := s
	for _, ev := range e.Commit.Events {
		var err error
		if next, err = session.Apply(next, ev, resolve); err != nil {
			return s, err
		}
	}
	return e.At.Made(next), nil
}

// Tombstone reports whether a commit archives its session: it may then be the only
// commit left in the log. The error is the answer to a reader of the session.
func Tombstone(c Commit) (*session.ArchivedError, bool) {
	if len(c.Events) == 0 {
		return nil, false
	}
	last := c.Events[len(c.Events)-1]
	a, err := DecodeArchival(last)
	if err != nil {
		return nil, false
	}
	return &session.ArchivedError{Key: c.Key, File: a.File, Time: last.Time}, true
}
