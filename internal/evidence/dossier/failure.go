package dossier

import (
	"fmt"
	"strings"

	"github.com/rathcluster/rath/session"
)

// Kind is the class of a failure.
type Kind string

// The kinds of failures. The list may grow.
const (
	// Malformed: the document contains no evidence, or evidence in a form that this
	// package does not write.
	Malformed Kind = "malformed"
	// Release: the document was written by another release in an unknown form.
	Release Kind = "other release"
	// Altered: the bytes of a commit do not match its hash, or the hash in the next
	// commit.
	Altered Kind = "altered"
	// Missing: a commit between two others, or a whole session, is missing.
	Missing Kind = "missing"
	// Reordered: a commit is in the position of another one of its log.
	Reordered Kind = "reordered"
	// Foreign: a commit, a session or a blob does not belong to the document.
	Foreign Kind = "foreign"
	// Cut: the log ends before a commit that another one refers to.
	Cut Kind = "cut"
	// Link: a reference from one session to another does not match its target.
	Link Kind = "reference"
	// Inconsistent: the commits contradict each other or the rules of a log.
	Inconsistent Kind = "inconsistent"
	// Blob: a content is damaged or missing.
	Blob Kind = "blob"
	// Rendered: a part of the rendering does not follow from the commits.
	Rendered Kind = "rendered"
	// Forged: a signature is damaged, or its statement contradicts the commits.
	Forged Kind = "signature"
	// Unsigned: no trusted signer signed the end of the run.
	Unsigned Kind = "not signed"
)

// Failure is the first error in a document.
type Failure struct {
	Kind    Kind
	Session session.ID // whose log is bad; "" for none
	Commit  uint64     // number of the first bad commit in that log; 0 for none
	Line    int        // of the document or of its evidence, from 1; 0 if unknown
	Detail  string
}

// Error returns the position, the kind and the cause.
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
