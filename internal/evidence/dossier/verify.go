package dossier

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/evidence/signature"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The forms of a document.
const (
	FormHTML     = "html"
	FormMarkdown = "markdown"
	FormJSON     = "json" // the evidence alone
)

// VerifyOptions configure [Verify]; nil checks the document by itself.
type VerifyOptions struct {
	// Head is the hash of the home session's last commit from another source, such
	// as the run's last lineage record. The zero Hash disables the check.
	Head session.Hash
	// Heads are the hashes of the last commits of any of the sessions.
	Heads map[session.ID]session.Hash
	// Trust holds the trusted signers: each finished run of the document must have a
	// signature of one. With nil a signature must be valid and may be of any key.
	Trust *signature.Trust
}

// Report is the result of [Verify].
type Report struct {
	Form     string // of the document
	Run      run.ID // "" of an archived tree
	Home     session.Key
	State    run.State
	Verdict  string
	Sessions []Chain // the home session first
	Commits  int
	Blobs    int
	Left     int // contents that were no longer stored when an archive was written
	// Anchored is the number of last commits that match a hash from another source or a
	// trusted signature: of all sessions of an archive, and of a dossier's home
	// session. If it is 0, a document that was cut, or rewritten as a whole, verifies too.
	Anchored int
	Signed   []Signed
	// Stated are the unproven statements in the document, verbatim: the exporter's
	// statements that no commit confirms, the reasons for omitted contents, and for
	// evidence alone the layout. The author of the document may have written anything
	// there.
	Stated []Fact
}

// Chain is one verified hash chain.
type Chain struct {
	Session session.ID   `json:"session"`
	Commits int          `json:"commits"`
	Head    session.Hash `json:"head"`             // of the last commit
	Signed  int          `json:"signed,omitempty"` // commits that a signature covers
}

// report returns a report with the counts of the evidence.
func (e *Evidence) report(form string) *Report {
	r := &Report{Form: form, Run: e.Run, Home: e.Home, Blobs: len(e.Blobs)}
	for _, l := range e.Logs {
		c := Chain{l.Session, len(l.Commits), commitlog.HashOf([]byte(l.Commits[len(l.Commits)-1])), 0}
		r.Sessions, r.Commits = append(r.Sessions, c), r.Commits+c.Commits
	}
	return r
}

// String returns the report in a few lines.
func (r *Report) String() string { return r.Text(true) }

// Text returns the report as text. Unless alone, next to the reports of other documents,
// it omits the consequences of an unanchored document.
func (r *Report) Text(alone bool) string {
	var b strings.Builder
	what := fmt.Sprintf("run %s of %s", r.Run, r.Home)
	if r.Form == FormTree {
		what = fmt.Sprintf("archive of tree %s of %s", r.Home.ID, r.Home.Tenant)
	}
	word := "verified"
	if r.Anchored == 0 {
		word = "consistent, not anchored" // a complete rewrite by a forger passes too
	}
	fmt.Fprintf(&b, "%s: %s\n%s, %s, %s\n", word, what, excerpt.Counted(len(r.Sessions), "session"), excerpt.Counted(r.Commits, "commit"), excerpt.Counted(r.Blobs, "blob"))
	if r.Form != FormTree {
		fmt.Fprintf(&b, "%s\n", r.Verdict)
	}
	for _, c := range r.Sessions {
		fmt.Fprintf(&b, "%s  %s  %s\n", c.Head, excerpt.Counted(c.Commits, "commit"), c.Session)
	}
	if r.Form == FormJSON {
		b.WriteString("the document has only evidence: there was no rendering to compare\n")
	}
	if r.Left > 0 {
		fmt.Fprintf(&b, "%s of workspaces were no longer stored when it was written\n", excerpt.Counted(r.Left, "file"))
	}
	switch {
	case r.Anchored > 0 || !alone:
	case r.Form == FormTree:
		b.WriteString("no last commit was verified with a hash from another source (--head), such as a\ntombstone's: the whole document could be rewritten\n")
	default:
		b.WriteString("the last commit was not verified with a hash from another source (--head):\ncommits at the end could be missing, or all of it could be rewritten\n")
	}
	b.WriteString(r.signedLines())
	b.WriteString(statedLines(r.Stated))
	return b.String()
}

// maxStated is the maximum number of unproven statements in a report.
const maxStated = 10

// statedLines lists the unproven statements.
func statedLines(stated []Fact) string {
	var b strings.Builder
	for _, s := range stated[:min(len(stated), maxStated)] {
		fmt.Fprintf(&b, "stated, not verified: %s %s\n", one(s.Name, 100), one(s.Value, 300))
	}
	if more := len(stated) - maxStated; more > 0 {
		fmt.Fprintf(&b, "stated, not verified: %d more\n", more)
	}
	return b.String()
}

// leftOut returns the omitted contents of a document with their reasons.
func leftOut(left map[blob.Digest]string) (out []Fact) {
	for _, d := range sorted(left) {
		out = append(out, Fact{"blob " + d.String() + " left out", left[d]})
	}
	return out
}

// Verify checks a document that [HTML], [Markdown] or [Evidence.Encode] made,
// from its bytes alone. The package comment describes the proof. The error is a
// [*Failure] that names the first bad commit, or the first line of the rendering
// that does not follow from the commits.
//
// Verify never writes, and reads only its arguments. Its time and memory are a small
// multiple of the size of the document's evidence. It reads at most 512 MiB of compressed
// evidence after decompression.
func Verify(doc []byte, o *VerifyOptions) (*Report, error) {
	form, text, packed, err := extract(doc)
	if err != nil {
		return nil, err
	}
	e, err := Decode(text)
	if err != nil {
		if f, ok := errors.AsType[*Failure](err); ok && f.Line > 0 && packed == nil {
			f.Line += bytes.Count(doc[:bytes.LastIndex(doc, text)], []byte("\n"))
		}
		return nil, err
	}
	a, f, err := e.read()
	if err != nil {
		return nil, err
	}
	r := e.report(form)
	r.State, r.Verdict, r.Signed = f.State, f.Verdict, a.marks
	if r.Stated, err = f.unconfirmed(e.Stated); err != nil {
		return nil, err
	}
	r.Stated = append(r.Stated, leftOut(e.Left)...)
	if err := r.anchor(a, e, o); err != nil {
		return nil, err
	}
	if form == FormJSON {
		r.Stated = append(r.Stated, Fact{"layout", strconv.Itoa(e.Layout)})
		return r, nil
	}
	if e.Layout != Layout {
		return nil, &Failure{Kind: Release, Detail: fmt.Sprintf("the document has layout %d, this release renders %d, so it cannot compare the rendering; "+
			"verify it with the release that wrote it, or its evidence alone", e.Layout, Layout)}
	}
	again, err := render(form, e, f, packed)
	if err != nil {
		return nil, err
	}
	if n, got, want := differ(string(doc), string(again)); n > 0 {
		return nil, &Failure{Kind: Rendered, Line: n, Detail: fmt.Sprintf("the document says %q, its commits say %q", clipped(got, want), clipped(want, got))}
	}
	return r, nil
}

// anchor compares signatures and heads with those in the options.
func (r *Report) anchor(a *archive, e *Evidence, o *VerifyOptions) error {
	if o == nil {
		o = &VerifyOptions{}
	}
	if err := r.trust(a, o.Trust); err != nil {
		return err
	}
	r.cover(a)
	signed := map[session.ID]bool{}
	for _, s := range r.Signed {
		if s.Signer != "" {
			signed[s.Session] = true
		}
	}
	known := map[session.ID]session.Hash{}
	maps.Copy(known, o.Heads)
	if o.Head != (session.Hash{}) {
		known[r.Home.ID] = o.Head
	}
	for i, c := range r.Sessions {
		h, ok := known[c.Session]
		if !ok {
			if signed[c.Session] {
				r.Anchored++
			}
			continue
		}
		delete(known, c.Session)
		if h != c.Head && r.Form == FormTree {
			return fail(Foreign, c.Session, uint64(c.Commits), "it is %s, and the head is %s: the archive is of another history", c.Head, h)
		}
		if h != c.Head {
			for n, raw := range e.Logs[i].Commits {
				if commitlog.HashOf([]byte(raw)) == h {
					return fail(Foreign, c.Session, uint64(n+2), "it follows the commit that the head %s names: the document is newer than that head", h)
				}
			}
			return fail(Cut, c.Session, uint64(c.Commits)+1, "the document's log ends with commit %d, %s, which is not the head %s: commits are missing at the end, or all of them were rewritten",
				c.Commits, c.Head, h)
		}
		if r.Form == FormTree || c.Session == r.Home.ID {
			r.Anchored++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		return fail(Missing, id, 0, "its head was given, but the session is not in the document")
	}
	return nil
}

// clipped returns the part of a line around its first difference from another line.
func clipped(s, other string) string {
	i := 0
	for i < len(s) && i < len(other) && s[i] == other[i] {
		i++
	}
	from := max(i-30, 0)
	s = strings.ToValidUTF8(s[from:min(i+50, len(s))], "")
	return visible(s)
}

// Markers of the evidence in a document. Nothing between them holds < or >.
const (
	htmlBegin  = `<script type="application/json" id="evidence">` + "\n"
	htmlPacked = `<script type="application/gzip" id="evidence">` + "\n" // in base64
	htmlEnd    = `</script>`
	markBegin  = "<!-- rath evidence\n"
	markPacked = "<!-- rath evidence, gzip in base64\n"
	markEnd    = "-->"
)

// extract finds the evidence in a document; packed is its compressed form, or nil.
func extract(doc []byte) (form string, text, packed []byte, err error) {
	begin, small, end := "", "", ""
	switch {
	case bytes.HasPrefix(doc, []byte(`{"format":`)):
		return FormJSON, doc, nil, nil
	case bytes.HasPrefix(doc, []byte("<!DOCTYPE html>")):
		form, begin, small, end = FormHTML, htmlBegin, htmlPacked, htmlEnd
	default:
		form, begin, small, end = FormMarkdown, markBegin, markPacked, markEnd
	}
	// The evidence is last in the document: a text of the run may quote another dossier.
	at, of := bytes.LastIndex(doc, []byte(begin)), begin
	if p := bytes.LastIndex(doc, []byte(small)); p > at {
		at, of = p, small
	}
	if at < 0 {
		return "", nil, nil, &Failure{Kind: Malformed, Detail: "no evidence in the document: want a dossier as HTML, Markdown or JSON"}
	}
	text, _, ok := bytes.Cut(doc[at+len(of):], []byte(end))
	if !ok {
		return "", nil, nil, &Failure{Kind: Malformed, Detail: "the evidence in the document has no end"}
	}
	if of == small {
		packed = text
		text, err = unpack(packed)
	}
	return form, text, packed, err
}

// render makes a document of evidence and its facts. packed is the evidence as compressed
// in an existing document; nil compresses large evidence.
func render(form string, e *Evidence, f *Facts, packed []byte) ([]byte, error) {
	text, err := e.Encode()
	if err != nil {
		return nil, err
	}
	small := len(text) > plainText
	if small {
		if packed == nil {
			if packed, err = pack(text); err != nil {
				return nil, fmt.Errorf("dossier: compress evidence: %w", err)
			}
		}
		text = packed
	}
	if form == FormHTML {
		return page(e, f, text, small)
	}
	return markdown(e, f, text, small)
}

// HTML renders evidence as one page that runs no scripts and loads no resources. It
// is a pure function: the same evidence gives the same bytes.
func HTML(e *Evidence) ([]byte, error) { return document(FormHTML, e) }

// Markdown renders evidence as Markdown, with the evidence in a comment at its
// end. It is a pure function too.
func Markdown(e *Evidence) ([]byte, error) { return document(FormMarkdown, e) }

func document(form string, e *Evidence) ([]byte, error) {
	if e.Layout != 0 && e.Layout != Layout {
		return nil, &Failure{Kind: Release, Detail: fmt.Sprintf("evidence for layout %d, this release renders %d", e.Layout, Layout)}
	}
	f, err := Read(e)
	if err != nil {
		return nil, err
	}
	return render(form, e, f, nil)
}
