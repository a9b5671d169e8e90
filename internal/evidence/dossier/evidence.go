package dossier

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Format is the version of the evidence's JSON that this release writes.
const Format = 1

// Layout is the version of the rendering. It changes whenever the same evidence
// renders to other bytes, because of a change in this package, its style sheet or
// the pictures of package lineage.
const Layout = 1

// Evidence is the input of a dossier. It is plain data: [Collect] reads it from a
// log, [Decode] from a document. For an archived tree, which [CollectTree] reads,
// Logs holds all sessions, and Blobs all contents that a commit names.
type Evidence struct {
	Run  run.ID      // "" of an archived tree
	Home session.Key // the root of an archived tree
	// Logs are the run's home session, the sessions that it made, the sessions of
	// the branches of its fan-outs, which are runs of their own, and the sessions that
	// these refer to, each from its first commit on, in the order of discovery.
	Logs []Log
	// Blobs are the contents that the rendering shows, by digest.
	Blobs map[blob.Digest][]byte
	// Left are the missing contents that the rendering would show, each with the
	// reason.
	Left map[blob.Digest]string
	// Stated are the exporter's statements about the run's surroundings. A statement
	// about a fact in the commits, such as the durability, must agree with them; the
	// other statements are unproven.
	Stated []Fact
	// Signatures are over the end of the run in the commits; in an archived tree, over
	// the end of each run.
	Signatures []Signature
	// Layout is the version of the rendering that the evidence was made for;
	// zero is this release's.
	Layout int
}

// Log is the stored commits of one session.
type Log struct {
	Session session.ID
	Commits []string // the stored bytes, the first commit first
}

// Fact is a statement about a run's surroundings, such as its release.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// The names of facts that exporters state.
const (
	FactRelease  = "release"
	FactProvider = "model provider"
	FactImported = "imported" // who imported a log into the exporter's store
)

// The evidence as JSON has one line per commit and per blob, so that damage can be
// located. No line contains <, > or &, so that the text can stand in a script element
// and in a comment.
const (
	textLogs  = `"logs":[`
	textBlobs = `],"blobs":[`
	textLeft  = `],"left":[`
	textEnd   = `]}`
)

type wireHead struct {
	Format int            `json:"format"`
	Layout int            `json:"layout"`
	Run    run.ID         `json:"run"`
	Tenant session.Tenant `json:"tenant"`
	Home   session.ID     `json:"home"`
	Stated []Fact         `json:"stated"`

	Signatures []Signature `json:"signatures,omitempty"`
}

type wireTree struct {
	Format int            `json:"format"`
	Root   session.ID     `json:"tree"`
	Tenant session.Tenant `json:"tenant"`
	Stated []Fact         `json:"stated"`

	Signatures []Signature `json:"signatures,omitempty"`
}

type wireCommit struct {
	Hash session.Hash `json:"hash"`
	Raw  string       `json:"raw"`
}

type wireBlob struct {
	Digest blob.Digest `json:"digest"`
	Text   string      `json:"text,omitempty"`
	Base64 string      `json:"base64,omitempty"`
}

type wireLeft struct {
	Digest blob.Digest `json:"digest"`
	Why    string      `json:"why"`
}

// Encode returns the evidence as JSON. Equal evidence has equal bytes.
func (e *Evidence) Encode() ([]byte, error) {
	stated := append([]Fact{}, e.Stated...)
	var head any = wireHead{Format, cmp.Or(e.Layout, Layout), e.Run, e.Home.Tenant, e.Home.ID, stated, e.Signatures}
	if e.Run == "" {
		head = wireTree{Format, e.Home.ID, e.Home.Tenant, stated, e.Signatures}
	}
	w := writer{}
	w.text(strings.TrimSuffix(w.json(head), "}") + ",\n" + textLogs + "\n")
	for i, l := range e.Logs {
		w.text(`{"session":` + w.json(l.Session) + `,"commits":[` + "\n")
		for n, raw := range l.Commits {
			w.text(w.json(wireCommit{commitlog.HashOf([]byte(raw)), raw}))
			w.next(n, len(l.Commits))
		}
		w.text("]}")
		w.next(i, len(e.Logs))
	}
	w.text(textBlobs + "\n")
	for i, d := range sorted(e.Blobs) {
		b := wireBlob{Digest: d}
		if data := e.Blobs[d]; utf8.Valid(data) {
			b.Text = string(data)
		} else {
			b.Base64 = base64.StdEncoding.EncodeToString(data)
		}
		w.text(w.json(b))
		w.next(i, len(e.Blobs))
	}
	w.text(textLeft + "\n")
	for i, d := range sorted(e.Left) {
		w.text(w.json(wireLeft{d, e.Left[d]}))
		w.next(i, len(e.Left))
	}
	w.text(textEnd + "\n")
	return []byte(w.b.String()), w.err
}

func sorted[V any](m map[blob.Digest]V) []blob.Digest {
	return slices.SortedFunc(maps.Keys(m), func(a, b blob.Digest) int { return slices.Compare(a[:], b[:]) })
}

type writer struct {
	b   strings.Builder
	err error
}

func (w *writer) text(s string) { w.b.WriteString(s) }

func (w *writer) json(v any) string {
	s, err := json.Marshal(v) // escapes <, > and &
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("dossier: encode evidence: %w", err)
	}
	return string(s)
}

// next ends the line of element i of n.
func (w *writer) next(i, n int) {
	if i < n-1 {
		w.text(",")
	}
	w.text("\n")
}

// Decode reads the output of Encode for a run; other forms of the same JSON are errors.
// Its errors are of type [*Failure] and name the commit whose line is damaged.
func Decode(data []byte) (*Evidence, error) { return decode(data, "evidence") }

// decode reads the output of Encode: evidence of a run, or an archive of a tree.
func decode(data []byte, what string) (*Evidence, error) {
	d := decoder{what: what, rest: string(data), e: &Evidence{Blobs: map[blob.Digest][]byte{}, Left: map[blob.Digest]string{}}}
	if err := d.head(); err != nil {
		return nil, err
	}
	if err := d.body(); err != nil {
		return nil, err
	}
	again, err := d.e.Encode()
	if err != nil {
		return nil, &Failure{Kind: Malformed, Detail: err.Error()}
	}
	if n, _, _ := differ(string(data), string(again)); n > 0 {
		return nil, &Failure{Kind: Malformed, Line: n, Detail: "the " + what + " is not in canonical form"}
	}
	return d.e, nil
}

type decoder struct {
	what string // "evidence" or "archive"
	rest string
	line int
	e    *Evidence
}

// next returns the next line without its end.
func (d *decoder) next() string {
	line, rest, _ := strings.Cut(d.rest, "\n")
	d.rest = rest
	d.line++
	return line
}

func (d *decoder) bad(format string, args ...any) error {
	return &Failure{Kind: Malformed, Line: d.line, Detail: d.what + ": " + fmt.Sprintf(format, args...)}
}

func (d *decoder) head() error {
	line, ok := strings.CutSuffix(d.next(), ",")
	var head struct {
		wireHead
		Root session.ID `json:"tree"`
	}
	if !ok || json.Unmarshal([]byte(line+"}"), &head) != nil {
		return d.bad("it is no %s: its first line is another one", d.what)
	}
	if head.Format != Format {
		return &Failure{Kind: Release, Line: d.line, Detail: fmt.Sprintf("%s of format %d, this release reads %d: use the release that wrote it", d.what, head.Format, Format)}
	}
	e, tree := d.e, d.what == FormTree
	e.Run, e.Home, e.Stated, e.Layout = head.Run, session.Key{Tenant: head.Tenant, ID: head.Home}, head.Stated, head.Layout
	e.Signatures = head.Signatures
	if tree {
		e.Run, e.Home.ID = "", head.Root
	}
	err := e.Home.Valid()
	if err == nil && !tree {
		err = session.ValidID("run", string(e.Run))
	}
	if err != nil {
		return d.bad("%v", err)
	}
	return nil
}

// body reads the lines after the first.
func (d *decoder) body() error {
	if d.next() != textLogs {
		return d.bad("want %s", textLogs)
	}
	for more := true; more; {
		var err error
		if more, err = d.log(); err != nil {
			return err
		}
	}
	if d.next() != textBlobs {
		return d.bad("want %s", textBlobs)
	}
	if err := d.blobs(); err != nil {
		return err
	}
	if err := d.left(); err != nil {
		return err
	}
	if d.rest != "" {
		return d.bad("something follows its end")
	}
	return nil
}

func (d *decoder) log() (more bool, err error) {
	line := d.next()
	inner, ok := strings.CutSuffix(line, `,"commits":[`)
	var id struct {
		Session session.ID `json:"session"`
	}
	if !ok || json.Unmarshal([]byte(inner+"}"), &id) != nil {
		return false, d.bad("want the beginning of a session, found %q", clip(line, 80))
	}
	if err := session.ValidID("session", string(id.Session)); err != nil {
		return false, d.bad("%v", err)
	}
	l := Log{Session: id.Session}
	for more := true; more; {
		line, ok := strings.CutSuffix(d.next(), ",")
		var c wireCommit
		n := uint64(len(l.Commits) + 1)
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return false, &Failure{Kind: Altered, Session: l.Session, Commit: n, Line: d.line, Detail: "its line is damaged: " + err.Error()}
		}
		if again, err := json.Marshal(c); err != nil || string(again) != line {
			return false, &Failure{Kind: Altered, Session: l.Session, Commit: n, Line: d.line, Detail: "its line is not in canonical form"}
		}
		if got := commitlog.HashOf([]byte(c.Raw)); got != c.Hash {
			return false, &Failure{Kind: Altered, Session: l.Session, Commit: n, Line: d.line, Detail: fmt.Sprintf("its bytes have the hash %s, the line says %s", got, c.Hash)}
		}
		l.Commits = append(l.Commits, c.Raw)
		more = ok
	}
	d.e.Logs = append(d.e.Logs, l)
	line, more = strings.CutSuffix(d.next(), ",")
	if line != textEnd {
		return false, &Failure{Kind: Malformed, Session: l.Session, Commit: uint64(len(l.Commits) + 1), Line: d.line, Detail: "want the end of the session"}
	}
	return more, nil
}

func (d *decoder) blobs() error {
	for {
		line := d.next()
		if line == textLeft {
			return nil
		}
		var b wireBlob
		if err := json.Unmarshal([]byte(strings.TrimSuffix(line, ",")), &b); err != nil {
			return &Failure{Kind: Blob, Line: d.line, Detail: "a blob's line is damaged: " + err.Error()}
		}
		data := []byte(b.Text)
		if b.Base64 != "" {
			var err error
			if data, err = base64.StdEncoding.DecodeString(b.Base64); err != nil {
				return &Failure{Kind: Blob, Line: d.line, Detail: fmt.Sprintf("blob %s: %v", b.Digest.Short(), err)}
			}
		}
		if got := blob.Sum(data); got != b.Digest {
			return &Failure{Kind: Blob, Line: d.line, Detail: fmt.Sprintf("a blob's bytes have the digest %s, the line says %s", got, b.Digest)}
		}
		d.e.Blobs[b.Digest] = data
	}
}

func (d *decoder) left() error {
	for {
		line := d.next()
		if line == textEnd {
			return nil
		}
		var l wireLeft
		if err := json.Unmarshal([]byte(strings.TrimSuffix(line, ",")), &l); err != nil || l.Digest.IsZero() {
			return &Failure{Kind: Blob, Line: d.line, Detail: "the line of a blob that was left out is damaged"}
		}
		d.e.Left[l.Digest] = l.Why
	}
}
