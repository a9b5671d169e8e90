package wire

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Error is an error on the wire: a code for programs, from the append-only list of
// package run, and a text for users.
type Error struct {
	Code run.Code `json:"code"`
	Text string   `json:"error"`
	// Archived is set for an archived session: Err is a [session.ArchivedError] then.
	Archived *archived `json:"archived,omitempty"`
}

// archived is the wire form of a session.ArchivedError; its tenant is the tenant of the
// request.
type archived struct {
	Session session.ID `json:"session"`
	File    string     `json:"file,omitempty"`
	Time    int64      `json:"time_ms,omitempty"`
	Partial bool       `json:"partial,omitempty"`
	Fenced  bool       `json:"fenced,omitempty"`
}

// archivedError is an error with a code that describes the archived session.
type archivedError struct {
	error
	of *session.ArchivedError
}

func (e *archivedError) Unwrap() []error { return []error{e.error, e.of} }

const (
	// maxErrorText is the maximum size of a text on the wire, in bytes, and
	// maxErrorReply exceeds the size of any error reply: JSON writes at most six bytes
	// for one.
	maxErrorText  = 4 << 10
	maxErrorReply = 8 * maxErrorText
)

// ErrorOf returns the wire form of err; nil for nil.
func ErrorOf(err error) *Error {
	if err == nil {
		return nil
	}
	e := &Error{Code: run.CodeOf(err), Text: excerpt.Start(messages.Text(err), maxErrorText)}
	if gone, ok := errors.AsType[*session.ArchivedError](err); ok {
		e.Archived = &archived{gone.Key.ID, excerpt.Start(gone.File, maxErrorText), gone.Time.UnixMilli(), gone.Partial, gone.Fenced}
		if gone.Time.IsZero() {
			e.Archived.Time = 0
		}
	}
	return e
}

// Err returns the error in e, nil for none; errors.Is finds the sentinel of its code.
func (e *Error) Err() error {
	if e == nil || e.Code == "" {
		return nil
	}
	err := e.Code.Err(e.Text)
	if a := e.Archived; a != nil {
		of := &session.ArchivedError{Key: session.Key{ID: a.Session}, File: a.File, Partial: a.Partial, Fenced: a.Fenced}
		if a.Time != 0 {
			of.Time = time.UnixMilli(a.Time)
		}
		return &archivedError{err, of}
	}
	return err
}

// ReplyError returns the error in a reply to a query, nil if the reply is no error: the
// result of a failed run has an error as well, but also a state.
func ReplyError(data []byte) error {
	if len(data) > maxErrorReply {
		return nil
	}
	var e struct {
		Error
		State run.State `json:"state"`
	}
	if json.Unmarshal(data, &e) != nil || e.Text == "" || e.State != "" {
		return nil
	}
	return e.Err()
}
