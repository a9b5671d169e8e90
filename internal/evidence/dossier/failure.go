package dossier

import (
	"fmt"
	"strings"

	"github.com/rathcluster/rath/session"
)

// Kind says what is wrong with a document.
type Kind string

// The kinds of failures. The list may grow.
const (
	// Malformed: the document holds no evidence, or holds it in another form
	// than this package writes.
	Malformed Kind = "malformed"
	// Release: written by another release whose form this one does not know.
	Release Kind = "other release"
	// Altered: the bytes of a commit are not those that its hash, or the
	// commit after it, names.
	Altered Kind = "altered"
	// Missing: a commit between two others, or a whole session, is not there.
	Missing Kind = "missing"
	// Reordered: a commit stands in the place of another one of its log.
	Reordered Kind = "reordered"
	// Foreign: a commit, a session or a blob that does not belong here.
	Foreign Kind = "foreign"
	// Cut: the log ends before a commit that another one refers to.
	Cut Kind = "cut"
	// Link: a reference from one session to another names something else than
	// what is there.
	Link Kind = "reference"
	// Inconsistent: the commits contradict each other or the rules of a log.
	Inconsistent Kind = "inconsistent"
	// Blob: a content is damaged or missing.
	Blob Kind = "blob"
	// Rendered: the document says something that does not follow from its
	// commits.
	Rendered Kind = "rendered"
	// Forged: a signature is damaged, or over something else than the commits say.
	Forged Kind = "signature"
	// Unsigned: no signature counts, by the list of signers that was given.
	Unsigned Kind = "not signed"
)

// Failure is the first thing that is wrong with a document.
type Failure struct {
	Kind    Kind
	Session session.ID // whose log is bad; "" if it is none's
	Commit  uint64     // number of the first bad commit in that log; 0 if none is
	Line    int        // of the document or of its evidence, from 1; 0 if unknown
	Detail  string
}

// Error names the place, the kind and the cause.
func (f *Failure) Error() string {
	var b strings.Builder
	b.WriteString("dossier: ")
	if f.Commit > 0 {
		fmt.Fprintf(&b, "commit %d of session %s: ", f.Commit, f.Session)
	} else if f.Session != "" {
		fmt.Fprintf(&b, "session %s: ", f.Session)
	}
	if f.Line > 0 && f.Commit == 0 {
		fmt.Fprintf(&b, "line %d: ", f.Line)
	}
	b.WriteString(string(f.Kind))
	if f.Detail != "" {
		b.WriteString(": " + f.Detail)
	}
	return b.String()
}

func fail(k Kind, s session.ID, commit uint64, format string, args ...any) *Failure {
	return &Failure{Kind: k, Session: s, Commit: commit, Detail: fmt.Sprintf(format, args...)}
}
