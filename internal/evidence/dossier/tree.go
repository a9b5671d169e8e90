package dossier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/session"
)

// FormTree is the form of an archived tree.
const FormTree = "archive"

const (
	// DefaultTree is the maximum size in bytes of the commits, and also of the blobs,
	// of an archived tree.
	DefaultTree = 512 << 20
	// MaxTreeFile is the maximum size in bytes of an archive's file, which is read as
	// a whole.
	MaxTreeFile = 2 * DefaultTree
)

// IsTree reports whether a file begins like an archived tree.
func IsTree(doc []byte) bool {
	line, _, _ := bytes.Cut(doc, []byte("\n"))
	var head wireTree
	text := strings.TrimSuffix(string(line), ",") + "}"
	return json.Unmarshal([]byte(text), &head) == nil && head.Format > 0 && head.Root != ""
}

// VerifyTree checks the archive of a tree from its bytes alone: every hash chain,
// the archiving commit at the end of each log, every reference between sessions and
// every digest. It compares the heads of o with the last commits of their sessions;
// o.Head is the head of the root.
func VerifyTree(doc []byte, o *VerifyOptions) (*Evidence, *Report, error) {
	t, err := decode(doc, FormTree)
	if err != nil {
		return nil, nil, err
	}
	a, err := t.checkTree()
	if err != nil {
		return nil, nil, err
	}
	r := t.report(FormTree)
	if r.Signed, err = a.signed(t.Signatures); err != nil {
		return nil, nil, err
	}
	r.Left, r.Stated = len(t.Left), append(slices.Clone(t.Stated), leftOut(t.Left)...)
	return t, r, r.anchor(a, t, o)
}

// checkTree verifies the chains, their ends and the references between them.
func (e *Evidence) checkTree() (*archive, error) {
	a, err := e.open()
	if err != nil {
		return nil, err
	}
	for _, c := range a.logs {
		if _, ok := commitlog.Tombstone(c.entries[c.last()-1].Commit); !ok {
			return nil, fail(Cut, c.key.ID, c.last()+1, "the log ends before the commit that archives it")
		}
	}
	for _, c := range a.logs {
		if _, err := a.stateOf(c, c.last()); err != nil {
			return nil, err
		}
		if err := a.references(c); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// references checks a log's references to other logs in the archive.
func (a *archive) references(c *chain) error {
	for i, facts := range c.facts {
		for _, e := range facts {
			for _, l := range e.Links() {
				to := a.byID[l.ID] // stateOf found the parents; the others may be of another tree
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
	}
	return nil
}

// CollectTree reads the archive of whole sessions from their logs: a root and its
// descendants. The archive is encoded like the evidence of a run, without a rendering.
// It is self-contained: each log ends with the commit that archived the session, and the
// archive includes the targets of all references and all stored blobs that a commit
// names. Each session must be archived already, so that no commit can follow.
//
// It fails with ErrTooLarge, and with a [*Failure] if the logs are inconsistent or refer
// to a session that is not among them.
func CollectTree(ctx context.Context, log commitlog.Log, blobs blob.Store, root session.Key, ids []session.ID, o *CollectOptions) (*Evidence, error) {
	c := newCollector(ctx, log, blobs, o, DefaultTree, DefaultTree)
	e := &Evidence{Home: root, Blobs: map[blob.Digest][]byte{}, Left: map[blob.Digest]string{}, Stated: c.o.Stated}
	var named []blob.Digest
	for _, id := range ids {
		ch, err := c.chain(session.Key{Tenant: root.Tenant, ID: id})
		if err != nil {
			return nil, err
		}
		if ch == nil {
			return nil, fmt.Errorf("dossier: session %s: %w", id, session.ErrNotFound)
		}
		e.take(ch, ch.last())
		for _, entry := range ch.entries {
			for _, ev := range entry.Commit.Events {
				named = append(named, digestsIn(ev.Data)...)
			}
		}
	}
	for _, data := range e.Blobs {
		if c.o.Blobs -= int64(len(data)); c.o.Blobs < 0 {
			return nil, fmt.Errorf("%w: its blobs exceed the limit", ErrTooLarge)
		}
	}
	if err := e.shelve(c, named); err != nil {
		return nil, err
	}
	a, err := e.checkTree()
	if err == nil {
		err = e.sign(ctx, a, c.o.Signatures)
	}
	if err == nil {
		_, err = a.signed(e.Signatures)
	}
	return e, err
}

// hex64 matches possible digests, also inside JSON in strings.
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

// shelve adds the named blobs to the evidence, and the files of workspaces. A commit also
// names hashes of other commits, and digests without a blob; only the blobs that a
// manifest names must exist. A list of a model's instructions names blobs as a commit does.
func (e *Evidence) shelve(c *collector, named []blob.Digest) error {
	asked := map[blob.Digest]bool{}
	fetch := func(d blob.Digest) ([]byte, string, error) {
		if asked[d] || e.Blobs[d] != nil {
			return e.Blobs[d], "", nil
		}
		asked[d] = true
		data, why, err := c.fetch(d)
		if err == nil && why == tooMuch {
			err = fmt.Errorf("%w: its blobs exceed the limit", ErrTooLarge)
		}
		if err == nil && why == "" {
			e.Blobs[d] = data
		}
		return data, why, err
	}
	for len(named) > 0 {
		d := named[0]
		named = named[1:]
		data, why, err := fetch(d)
		if err != nil {
			return err
		}
		if list, ok := journal.ReadInstructions(data); ok {
			named = append(named, list.Digests()...)
		}
		if why != "" || !manifest.Looks(data) {
			continue
		}
		files, err := manifest.Read(d, func(d blob.Digest) ([]byte, error) {
			data, why, err := fetch(d)
			if err == nil && why != "" {
				e.Left[d] = why
				err = notThere(why)
			}
			return data, err
		})
		_, gone := errors.AsType[notThere](err)
		if gone || errors.Is(err, manifest.ErrMalformed) {
			continue // incomplete, or other data that looks like a manifest
		}
		if err != nil {
			return err
		}
		for d := range files.Blobs() {
			_, why, err := fetch(d)
			if err != nil {
				return err
			}
			if why != "" {
				e.Left[d] = why
			}
		}
	}
	return nil
}
