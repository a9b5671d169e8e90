package dossier

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/signature"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Signature is the signature of a node, or of the operator, over the end of a run.
type Signature struct {
	Statement string `json:"statement"` // see messages.Result.Say
	Signature string `json:"signature"` // over it, as ssh-keygen writes it
}

// Signatures returns the signatures in a document, in the order of Report.Signed, without
// checking them.
func Signatures(doc []byte) ([]Signature, error) {
	text, what := doc, FormTree
	if !IsTree(doc) {
		var err error
		if _, text, _, err = extract(doc); err != nil {
			return nil, err
		}
		what = "evidence"
	}
	e, err := decode(text, what)
	if err != nil {
		return nil, err
	}
	return e.Signatures, nil
}

// Sign adds a signature over the end of the run in the commits. It fails with a
// [*Failure] if the run has not ended, or the commits are inconsistent.
func (e *Evidence) Sign(sign func(statement string) (signature string, err error)) error {
	a, err := e.open()
	if err != nil {
		return err
	}
	ends := a.results()
	if len(ends) == 0 {
		return fail(Unsigned, e.Home.ID, 0, "run %s has not ended, and only ends are signed", e.Run)
	}
	for _, r := range ends {
		statement := r.Say(e.Home.Tenant)
		signature, err := sign(statement)
		if err != nil {
			return err
		}
		e.Signatures = append(e.Signatures, Signature{statement, signature})
	}
	return nil
}

// maxSignatures is the maximum number of signatures per run in a document.
const maxSignatures = 8

// Signed is a valid signature over the end of a run.
type Signed struct {
	Run     run.ID       `json:"run"`
	Session session.ID   `json:"session"` // the home of the run
	Commit  uint64       `json:"commit"`  // that ended it, in the log of Session
	Head    session.Hash `json:"head"`    // of that commit
	Ended   time.Time    `json:"ended"`
	Key     string       `json:"key"` // its fingerprint
	// Signer is the key's name in the list of signers, "" if there is no list or the
	// key is not accepted. Problem is the reason why it is not accepted.
	Signer  string `json:"signer,omitempty"`
	Problem string `json:"problem,omitempty"`

	by signature.By
}

// results returns the ends of runs in the commits, in the order of the logs; for a
// dossier only the end of its run.
func (a *archive) results() (out []messages.Result) {
	for _, c := range a.logs {
		for n, facts := range c.facts {
			for _, r := range translate.Results(c.entries[n], facts) {
				if a.run == "" || r.Run == a.run {
					out = append(out, r)
				}
			}
		}
	}
	return out
}

// signed checks each signature against the commits: it must be over a statement that
// follows from them, about a run of the document.
func (a *archive) signed(all []Signature) ([]Signed, error) {
	if len(all) == 0 {
		return nil, nil
	}
	said := map[string]messages.Result{}
	for _, r := range a.results() {
		said[r.Say(a.home.Tenant)] = r
	}
	if len(all) > maxSignatures*max(len(said), 1) {
		return nil, fail(Forged, "", 0, "%d signatures, at most %d of a run are read", len(all), maxSignatures)
	}
	out := make([]Signed, len(all))
	for i, s := range all {
		r, ok := said[s.Statement]
		if !ok {
			return nil, a.contradicted(s.Statement)
		}
		by, err := signature.Check(s.Statement, s.Signature)
		if err != nil {
			return nil, fail(Forged, r.Chain.Session, 0, "signature %d, of run %s: %v", i+1, r.Run, err)
		}
		out[i] = Signed{Run: r.Run, Session: r.Chain.Session, Commit: r.Chain.Seq, Ended: time.UnixMilli(r.EndedMS).UTC(), Key: by.Fingerprint(), by: by}
		if err := out[i].Head.UnmarshalText([]byte(r.Chain.Hash)); err != nil {
			return nil, fail(Malformed, r.Chain.Session, r.Chain.Seq, "%v", err)
		}
	}
	return out, nil
}

// contradicted returns the first difference between a statement and the commits.
func (a *archive) contradicted(statement string) error {
	lines := strings.Split(statement, "\n")
	for _, r := range a.results() {
		for i, want := range strings.Split(r.Say(a.home.Tenant), "\n") {
			if i >= len(lines) || lines[i] != want {
				got := "nothing"
				if i < len(lines) {
					got = fmt.Sprintf("%q", clipped(lines[i], ""))
				}
				return fail(Forged, r.Chain.Session, 0, "what is signed says %s, the commits say %q: the signature is of another run, or the commits are not those that were signed", got, want)
			}
		}
	}
	return fail(Forged, a.home.ID, 0, "a signature over %q, and the commits record no end of a run", clipped(statement, ""))
}

// trust compares signatures with a list of signers. One of them must have signed each
// finished run.
func (r *Report) trust(a *archive, t *signature.Trust) error {
	if t == nil {
		return nil
	}
	accepted, why := map[run.ID]bool{}, map[run.ID]error{}
	for i := range r.Signed {
		s := &r.Signed[i]
		name, err := t.Accept(s.by, s.Ended)
		if err != nil {
			s.Problem, why[s.Run] = err.Error(), errors.Join(why[s.Run], err)
			continue
		}
		s.Signer, accepted[s.Run] = name, true
	}
	ends := a.results()
	if len(ends) == 0 {
		return fail(Unsigned, a.home.ID, 0, "no run has ended in it, and only ends are signed")
	}
	for _, end := range ends {
		switch {
		case accepted[end.Run]:
		case why[end.Run] != nil:
			return fail(Unsigned, end.Chain.Session, 0, "no signature of run %s counts: %s", end.Run, strings.ReplaceAll(why[end.Run].Error(), "\n", "; "))
		default:
			return fail(Unsigned, end.Chain.Session, 0, "run %s is not signed: its nodes had no key, or the signature was taken out", end.Run)
		}
	}
	return nil
}

// cover counts, for each session, the commits that a signature covers: the commits of
// the home session up to the signed one, and the commits they refer to in other sessions.
func (r *Report) cover(a *archive) {
	covered := map[session.ID]uint64{}
	var visit func(id session.ID, upTo uint64)
	visit = func(id session.ID, upTo uint64) {
		c := a.byID[id]
		if c == nil {
			return
		}
		from := covered[id]
		if upTo = min(upTo, c.last()); upTo <= from {
			return
		}
		covered[id] = upTo
		for _, facts := range c.facts[from:upTo] {
			for _, e := range facts {
				for _, l := range e.Links() {
					visit(l.ID, l.Seq)
				}
			}
		}
	}
	for _, s := range r.Signed {
		if s.Problem == "" {
			visit(s.Session, s.Commit)
		}
	}
	for i := range r.Sessions {
		r.Sessions[i].Signed = int(covered[r.Sessions[i].Session]) //nolint:gosec // at most the commits of a file
	}
}

// signedLines returns the signatures as lines of the report.
func (r *Report) signedLines() string {
	var b strings.Builder
	for _, s := range r.Signed[:min(len(r.Signed), maxStated)] {
		what := fmt.Sprintf("commit %d of session %s, the end of run %s", s.Commit, s.Session, s.Run)
		switch {
		case s.Signer != "":
			fmt.Fprintf(&b, "signed: %s\n  by %s, %s\n", what, one(s.Signer, 100), s.Key)
		case s.Problem != "":
			fmt.Fprintf(&b, "signed and not counted: %s\n  %s\n", what, one(s.Problem, 300))
		default:
			fmt.Fprintf(&b, "signed: %s\n  by %s; --signers verifies the owner\n", what, s.Key)
		}
	}
	if more := len(r.Signed) - maxStated; more > 0 {
		fmt.Fprintf(&b, "signed: %d more\n", more)
	}
	if rest := r.Commits - r.covered(); len(r.Signed) > 0 && rest > 0 {
		fmt.Fprintf(&b, "no signature stands for %s, which came after the end or which no\nsigned commit refers to\n", excerpt.Counted(rest, "commit"))
	}
	return b.String()
}

func (r *Report) covered() (n int) {
	for _, c := range r.Sessions {
		n += c.Signed
	}
	return n
}
