package dossier

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// FormTree is the form of an archived tree.
const FormTree = "archive"

const (
	// DefaultTree is how many bytes of commits, and how many of blobs, an archived
	// tree holds at most.
	DefaultTree = 512 << 20
	// MaxTreeFile is how many bytes the file of one may have, which has to be read
	// as a whole.
	MaxTreeFile = 2 * DefaultTree
)

// Tree is the archive of whole sessions: a root with everything under it. Its
// file is written like evidence, with another first line, and renders nothing.
// It is complete in itself: each log ends with the commit that archived the
// session, all that a session refers to is there, and so is every blob that a
// commit names and that was stored.
type Tree struct {
	Tenant session.Tenant
	Root   session.ID
	// Logs are the sessions, parents before their children as far as they were
	// so found, each from its first commit to the one that archives it.
	Logs  []Log
	Blobs map[blob.Digest][]byte
	// Left are the contents of workspaces that were no longer stored, each with
	// the reason.
	Left   map[blob.Digest]string
	Stated []Fact // by who archived it; nothing proves it
}

type wireTree struct {
	Format int            `json:"format"`
	Root   session.ID     `json:"tree"`
	Tenant session.Tenant `json:"tenant"`
	Stated []Fact         `json:"stated"`
}

// evidence is the tree as what is written after the first line.
func (t *Tree) evidence() *Evidence {
	return &Evidence{Home: session.Key{Tenant: t.Tenant, ID: t.Root}, Logs: t.Logs, Blobs: t.Blobs, Left: t.Left, Stated: t.Stated}
}

// Encode returns the file. Equal trees have equal bytes.
func (t *Tree) Encode() ([]byte, error) {
	stated := t.Stated
	if stated == nil {
		stated = []Fact{}
	}
	return t.evidence().encode(wireTree{Format, t.Root, t.Tenant, stated})
}

// IsTree reports whether a file is meant as an archived tree.
func IsTree(doc []byte) bool {
	line, _, _ := bytes.Cut(doc, []byte("\n"))
	var head wireTree
	text := strings.TrimSuffix(string(line), ",") + "}"
	return json.Unmarshal([]byte(text), &head) == nil && head.Format > 0 && head.Root != ""
}

// DecodeTree reads what Encode writes, and nothing else. Its errors are of type
// [*Failure] and name the commit whose line is damaged. It checks digests and
// hashes, and no more: see [VerifyTree].
func DecodeTree(data []byte) (*Tree, error) {
	d := decoder{rest: string(data), e: &Evidence{Blobs: map[blob.Digest][]byte{}, Left: map[blob.Digest]string{}}}
	line, ok := strings.CutSuffix(d.next(), ",")
	var head wireTree
	if !ok || json.Unmarshal([]byte(line+"}"), &head) != nil {
		return nil, d.bad("its first line is not that of an archive")
	}
	if head.Format != Format {
		return nil, &Failure{Kind: Release, Line: d.line, Detail: fmt.Sprintf("archive of format %d, this release reads %d: use the release that wrote it", head.Format, Format)}
	}
	if err := (session.Key{Tenant: head.Tenant, ID: head.Root}).Valid(); err != nil {
		return nil, d.bad("%v", err)
	}
	if err := d.body(); err != nil {
		return nil, err
	}
	t := &Tree{Tenant: head.Tenant, Root: head.Root, Logs: d.e.Logs, Blobs: d.e.Blobs, Left: d.e.Left, Stated: head.Stated}
	again, err := t.Encode()
	if err != nil {
		return nil, &Failure{Kind: Malformed, Detail: err.Error()}
	}
	if n, _, _ := differ(string(data), string(again)); n > 0 {
		return nil, &Failure{Kind: Malformed, Line: n, Detail: "the archive is not in canonical form"}
	}
	return t, nil
}

// TreeReport says what was verified of an archived tree.
type TreeReport struct {
	Tenant   session.Tenant
	Root     session.ID
	Sessions []Chain
	Commits  int
	Blobs    int
	Left     int // contents that were no longer stored when it was written
	// Anchored is how many of the sessions were compared with a hash from
	// elsewhere.
	Anchored int
	// Stated is what the archive says and nothing in it proves, as in Report.
	Stated []Fact
}

// String tells the report in a few lines.
func (r *TreeReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "verified: archive of tree %s of %s\n%s, %s, %s\n", r.Root, r.Tenant, counted(len(r.Sessions), "session"), counted(r.Commits, "commit"), counted(r.Blobs, "blob"))
	for _, c := range r.Sessions {
		fmt.Fprintf(&b, "%s  %s  %s\n", c.Head, counted(c.Commits, "commit"), c.Session)
	}
	if r.Left > 0 {
		fmt.Fprintf(&b, "%s of workspaces were no longer stored when it was written\n", counted(r.Left, "file"))
	}
	if r.Anchored == 0 {
		b.WriteString("no last commit was compared with a hash from elsewhere (--head), such as that of\na tombstone: all of it could be written anew\n")
	}
	b.WriteString(statedLines(r.Stated))
	return b.String()
}

// VerifyTree checks an archived tree with nothing but its bytes: every hash
// chain, that each log ends with the commit that archived it, every reference
// between sessions and every digest. A head of o is compared with the last
// commit of its session; o.Head is that of the root.
func VerifyTree(doc []byte, o *VerifyOptions) (*Tree, *TreeReport, error) {
	t, err := DecodeTree(doc)
	if err != nil {
		return nil, nil, err
	}
	if err := t.check(); err != nil {
		return nil, nil, err
	}
	r := &TreeReport{Tenant: t.Tenant, Root: t.Root, Blobs: len(t.Blobs), Left: len(t.Left), Stated: append(slices.Clone(t.Stated), leftOut(t.Left)...)}
	for _, l := range t.Logs {
		c := Chain{l.Session, len(l.Commits), l.head()}
		r.Sessions = append(r.Sessions, c)
		r.Commits += c.Commits
	}
	return t, r, r.anchor(o)
}

// Head is the hash of a session's last commit; ok is false if it is not there.
func (t *Tree) Head(id session.ID) (h session.Hash, ok bool) {
	i := slices.IndexFunc(t.Logs, func(l Log) bool { return l.Session == id })
	if i < 0 {
		return h, false
	}
	return t.Logs[i].head(), true
}

func (l *Log) head() session.Hash { return session.HashOf([]byte(l.Commits[len(l.Commits)-1])) }

func (r *TreeReport) anchor(o *VerifyOptions) error {
	if o == nil {
		return nil
	}
	known := map[session.ID]session.Hash{}
	maps.Copy(known, o.Heads)
	if o.Head != (session.Hash{}) {
		known[r.Root] = o.Head
	}
	for _, c := range r.Sessions {
		h, ok := known[c.Session]
		if ok && h != c.Head {
			return fail(Foreign, c.Session, uint64(c.Commits), "it is %s, and the head is %s: the archive is of another history", c.Head, h)
		}
		if ok {
			r.Anchored++
			delete(known, c.Session)
		}
	}
	for id := range known {
		return fail(Missing, id, 0, "its head was given, but the session is not in the archive")
	}
	return nil
}

// check verifies the chains, their ends and the references between them.
func (t *Tree) check() error {
	e := t.evidence()
	a := &archive{home: e.Home, byID: map[session.ID]*chain{}}
	for _, l := range t.Logs {
		if a.byID[l.Session] != nil {
			return fail(Foreign, l.Session, 0, "the session is there twice")
		}
		c := &chain{key: session.Key{Tenant: t.Tenant, ID: l.Session}}
		if err := c.fill(l.Commits, t.Blobs); err != nil {
			return err
		}
		if _, ok := session.Tombstone(c.entries[c.last()-1].Commit); !ok {
			return fail(Cut, l.Session, c.last()+1, "the log ends before the commit that archives it")
		}
		a.logs, a.byID[l.Session] = append(a.logs, c), c
	}
	for _, c := range a.logs {
		if _, err := a.stateOf(c, c.last()); err != nil {
			return err
		}
		if err := a.references(c); err != nil {
			return err
		}
	}
	return nil
}

// references checks the hashes that a log names of others in the archive.
func (a *archive) references(c *chain) error {
	for i, facts := range c.facts {
		var links []session.Link
		for _, e := range facts {
			links = append(links, e.Links()...)
		}
		for _, l := range links { // stateOf found the parents; the others may be of another tree
			to := a.byID[l.ID]
			if to == nil || l.Seq == 0 {
				continue
			}
			if l.Seq > to.last() {
				return fail(Cut, l.ID, to.last()+1, "the log ends before it, but commit %d of session %s refers to commit %d", i+1, c.key.ID, l.Seq)
			}
			if got := to.entries[l.Seq-1].At.Hash; got != l.Hash {
				return fail(Link, c.key.ID, uint64(i+1), "it refers to commit %d of session %s as %s, which is %s", l.Seq, l.ID, l.Hash.Short(), got.Short())
			}
		}
	}
	return nil
}

// TreeOptions configure [CollectTree]; nil means the defaults.
type TreeOptions struct {
	Stated []Fact
	// Commits and Blobs are how many bytes of them are read at most; 0 is
	// DefaultTree.
	Commits, Blobs int64
}

// CollectTree reads the archive of sessions from their logs, and the blobs that
// they name. Each session has to be archived already, so that nothing follows
// meanwhile.
//
// It fails with ErrTooLarge, and with a [*Failure] if the logs do not hold
// together or refer to a session that is not among them.
func CollectTree(ctx context.Context, log session.Log, blobs blob.Store, tenant session.Tenant, root session.ID, ids []session.ID, o *TreeOptions) (*Tree, error) {
	c := collector{ctx: ctx, log: log, store: blobs, chains: map[session.Key]*chain{}, o: CollectOptions{Commits: DefaultTree, Blobs: DefaultTree}}
	t := &Tree{Tenant: tenant, Root: root, Blobs: map[blob.Digest][]byte{}, Left: map[blob.Digest]string{}}
	if o != nil {
		t.Stated = o.Stated
		if o.Commits > 0 {
			c.o.Commits = o.Commits
		}
		if o.Blobs > 0 {
			c.o.Blobs = o.Blobs
		}
	}
	var named []blob.Digest
	for _, id := range ids {
		ch, err := c.chain(session.Key{Tenant: tenant, ID: id})
		if err != nil {
			return nil, err
		}
		if ch == nil {
			return nil, fmt.Errorf("dossier: session %s: %w", id, session.ErrNotFound)
		}
		l := Log{Session: id}
		for _, e := range ch.entries {
			l.Commits = append(l.Commits, e.Raw)
			for _, ev := range e.Commit.Events {
				if d := ev.Blob.Digest; !d.IsZero() && t.Blobs[d] == nil {
					if c.o.Blobs -= int64(len(ev.Data)); c.o.Blobs < 0 {
						return nil, fmt.Errorf("%w: its blobs exceed the limit", ErrTooLarge)
					}
					t.Blobs[d] = []byte(ev.Data)
				}
				named = append(named, digestsIn(ev.Data)...)
			}
		}
		t.Logs = append(t.Logs, l)
	}
	if err := t.shelve(&c, named); err != nil {
		return nil, err
	}
	return t, t.check()
}

// hex64 finds what may be a digest, also inside of JSON that is text.
var hex64 = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

func digestsIn(data string) (all []blob.Digest) {
	for _, text := range hex64.FindAllString(data, -1) {
		var d blob.Digest
		if d.UnmarshalText([]byte(text)) == nil {
			all = append(all, d)
		}
	}
	return all
}

// shelve takes along the blobs that are named: of a workspace also its files.
// A commit names hashes of other commits too, and digests of which there never
// was a blob; only a manifest says that something must be there.
func (t *Tree) shelve(c *collector, named []blob.Digest) error {
	asked := map[blob.Digest]bool{}
	fetch := func(d blob.Digest) ([]byte, string, error) {
		if asked[d] || t.Blobs[d] != nil {
			return t.Blobs[d], "", nil
		}
		asked[d] = true
		data, why, err := c.fetch(d)
		if err == nil && why == tooMuch {
			err = fmt.Errorf("%w: its blobs exceed the limit", ErrTooLarge)
		}
		if err == nil && why == "" {
			t.Blobs[d] = data
		}
		return data, why, err
	}
	for _, d := range named {
		data, why, err := fetch(d)
		if err != nil {
			return err
		}
		if why != "" || !bytes.HasPrefix(data, []byte(`{"format":`)) {
			continue
		}
		files, err := workspace.Decode(data)
		if err != nil {
			continue // something else that looks like a manifest
		}
		for e := range files.Entries() {
			if e.Kind != workspace.File {
				continue
			}
			_, why, err := fetch(e.Digest)
			if err != nil {
				return err
			}
			if why != "" {
				t.Left[e.Digest] = why
			}
		}
	}
	return nil
}
