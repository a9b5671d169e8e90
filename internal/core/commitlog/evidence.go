package commitlog

import (
	"strings"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/session"
)

// Rejection records in a parent the outcome of a branch that was not joined.
type Rejection struct {
	Branch session.Link `json:"branch"`
	Reason string       `json:"reason"`
	State  string       `json:"state"` // session.ClosedRejected, ClosedCancelled or ClosedFailed
}

// Archival records where the commits of an archived session are.
type Archival struct {
	By   string `json:"by,omitempty"`
	File string `json:"file"` // name of the archive, without its directory
}

// Restoration records the operator that reopened an archived session, and the reason.
type Restoration struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// RejectedEvent records the end of a branch in its parent.
func RejectedEvent(r Rejection) session.Event {
	r.Reason = clean(r.Reason)
	return event(session.KindRejected, r)
}

// ArchivedEvent records that a session was archived.
func ArchivedEvent(a Archival) session.Event {
	a.By, a.File = clean(a.By), clean(a.File)
	return event(session.KindArchived, a)
}

// RestoredEvent records that an archived session is open again.
func RestoredEvent(r Restoration) session.Event {
	r.By, r.Reason = clean(r.By), clean(r.Reason)
	return event(session.KindRestored, r)
}

// DecodeRejection reads a session.KindRejected event.
func DecodeRejection(e session.Event) (r Rejection, err error) {
	err = session.Decode(e, session.KindRejected, &r)
	return
}

// DecodeArchival reads a session.KindArchived event.
func DecodeArchival(e session.Event) (a Archival, err error) {
	err = session.Decode(e, session.KindArchived, &a)
	return
}

// DecodeRestoration reads a session.KindRestored event.
func DecodeRestoration(e session.Event) (r Restoration, err error) {
	err = session.Decode(e, session.KindRestored, &r)
	return
}

func event(kind string, what any) session.Event {
	return session.Event{Kind: kind, Schema: session.Schema, Data: canonical.MustMarshal(what)}
}

func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
