// Package problem turns errors into the answers of HTTP: problem documents as RFC 9457 has
// them, with the code that the results of runs have, and the remedy. Every door of this
// module writes its errors with it, so that one error has one status and one text.
//
//	problem.Write(w, r, err)
//
// An id of another tenant and an id that never existed give the same document.
//
// Files, the lowest first: code (the status and the title of each code), problem.
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/evidence/events"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// MediaType is the type of a document's JSON.
const MediaType = "application/problem+json"

// Document is an error as the answer to a request.
type Document struct {
	// Type is "urn:rath:problem:" and the code.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail is the text of the error: the object, the cause and, where it has one, the
	// remedy.
	Detail string   `json:"detail,omitempty"`
	Code   run.Code `json:"code"`
	Remedy string   `json:"remedy,omitempty"`
	// Field is the part of a request that is wrong.
	Field string `json:"field,omitempty"`
	// RetryAfter is the time in seconds after which the same request may succeed.
	RetryAfter int `json:"retry_after_s,omitempty"`
}

// Error is an error with a code of its own for the answer.
type Error struct {
	Code   run.Code
	Text   string
	Remedy string
	// RetryAfter is the time in seconds after which the same request may succeed; zero is
	// that of the code.
	RetryAfter int
}

// Error returns the text and the remedy.
func (e *Error) Error() string {
	if e.Remedy == "" {
		return e.Text
	}
	return e.Text + ": " + e.Remedy
}

// ErrorCode returns the code, see run.CodeOf.
func (e *Error) ErrorCode() string { return string(e.Code) }

// maxDetail bounds the detail of a document, in bytes.
const maxDetail = 4 << 10

// Of returns the document of an error, which is not nil.
func Of(err error) Document {
	code := CodeOf(err)
	row := rowOf(code)
	d := Document{
		Type: "urn:rath:problem:" + string(code), Title: row.title, Status: row.status, Code: code, Remedy: row.remedy, RetryAfter: row.after,
		Detail: excerpt.Start(strings.ToValidUTF8(messages.Text(err), "\uFFFD"), maxDetail),
	}
	if wrong, ok := errors.AsType[*strict.Error](err); ok {
		d.Field = wrong.Field
		if wrong.Remedy != "" {
			d.Remedy = wrong.Remedy
		}
	}
	if own, ok := errors.AsType[*Error](err); ok {
		if own.Remedy != "" {
			d.Remedy = own.Remedy
		}
		if own.RetryAfter > 0 {
			d.RetryAfter = own.RetryAfter
		}
	}
	return d
}

// CodeOf returns the code of an error as answers have it: the code of package run, or one
// of this package's for an error that only an answer has.
func CodeOf(err error) run.Code {
	for _, c := range []struct {
		code run.Code
		errs []error
	}{
		{CodeDenied, []error{client.ErrDenied}},
		{run.CodeUnavailable, []error{client.ErrUnreachable, client.ErrNoAnswer}},
		{run.CodeNotFound, []error{lineage.ErrNotFound, blob.ErrNotFound, memory.ErrNotFound, fs.ErrNotExist, session.ErrTenant}},
		{run.CodeMalformed, []error{events.ErrToken, events.ErrForeign, events.ErrFuture, memory.ErrInvalidURI, view.ErrNotFile, view.ErrNotText}},
		{run.CodeTooLarge, []error{memory.ErrTooLarge, dossier.ErrTooLarge}},
		{run.CodeState, []error{memory.ErrFull, view.ErrEmptyFile}},
		{run.CodeNotSupported, []error{errors.ErrUnsupported}},
	} {
		for _, target := range c.errs {
			if errors.Is(err, target) {
				return c.code
			}
		}
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok && large != nil {
		return run.CodeTooLarge
	}
	if code := run.CodeOf(err); code != run.CodeError || !errors.Is(err, context.Canceled) {
		return code
	}
	return run.CodeCancelled
}

// A Writer writes the document of an error in the form of a protocol, with its status. The
// headers that do not depend on the form are set.
type Writer func(w http.ResponseWriter, r *http.Request, d *Document)

type writerKey struct{}

// With returns a request whose errors Write writes in the form of another protocol.
func With(r *http.Request, write Writer) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), writerKey{}, write))
}

// Formed reports whether the errors of a request have the form of another protocol.
func Formed(r *http.Request) bool { return r.Context().Value(writerKey{}) != nil }

// Write answers a request with the document of an error.
func Write(w http.ResponseWriter, r *http.Request, err error) {
	d := Of(err)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Del("ETag")
	h.Del("Content-Disposition")
	if d.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(d.RetryAfter))
	}
	if d.Code == CodeUnauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="rath"`)
	}
	if write, ok := r.Context().Value(writerKey{}).(Writer); ok {
		write(w, r, &d)
		return
	}
	body, _ := json.Marshal(&d) // it holds texts and numbers, which always encode
	h.Set("Content-Type", MediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(d.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client has gone if it fails
	}
}
