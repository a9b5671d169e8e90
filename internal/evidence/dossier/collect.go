package dossier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Limits of a dossier.
const (
	// DefaultBlobs is the default limit of contents, in bytes.
	DefaultBlobs = 16 << 20
	// DefaultCommits is the default limit of commits, in bytes.
	DefaultCommits = 128 << 20
)

// ErrTooLarge is returned for a run or a tree over the limits.
var ErrTooLarge = errors.New("dossier: the run's commits are too large")

// CollectOptions configure [Collect] and [CollectTree]; nil means the defaults.
type CollectOptions struct {
	// Stated are facts about the run's surroundings that are not in the commits:
	// release, model provider. They must not contain credentials or contradict the
	// commits.
	Stated []Fact
	// Signatures returns the signatures of a finished run, which its result holds; a nil
	// function collects none. It is called once for a dossier, and once for each
	// finished run of a tree.
	Signatures func(context.Context, run.ID) ([]Signature, error)
	// Blobs is the maximum size of workspace manifests, files and notes in bytes; 0 is
	// DefaultBlobs, and DefaultTree for a tree. For contents beyond it a dossier has the
	// digests.
	Blobs int64
	// Commits is the maximum size of the commits in bytes; 0 is DefaultCommits, and
	// DefaultTree for a tree.
	Commits int64
}

// Collect reads the evidence of a run from a log: its home session, the
// sessions that it made, and the sessions that these were forked from or took
// rows of. blobs may be nil; then the dossier shows no file and no note. Collect
// may be called while the run is open and returns its commits so far.
//
// It fails with [session.ErrNotFound] if the home session does not exist, with
// a [*Failure] if the log is inconsistent or does not contain the run, and with
// ErrTooLarge.
func Collect(ctx context.Context, log commitlog.Log, blobs blob.Store, home session.Key, id run.ID, o *CollectOptions) (*Evidence, error) {
	c := newCollector(ctx, log, blobs, o, DefaultCommits, DefaultBlobs)
	all, _, err := plan(id, home, c.chain)
	if err != nil {
		return nil, err
	}
	e := &Evidence{Run: id, Home: home, Blobs: map[blob.Digest][]byte{}, Left: map[blob.Digest]string{}, Stated: c.o.Stated, Layout: Layout}
	for _, p := range all {
		e.take(p.c, p.upTo)
		e.imported(p.c, p.upTo)
	}
	a, err := e.open()
	if err != nil {
		return nil, err
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	if err := e.sign(ctx, a, c.o.Signatures); err != nil {
		return nil, err
	}
	if a.marks, err = a.signed(e.Signatures); err != nil {
		return nil, err
	}
	// The evidence contains the blobs that the rendering reads: a file under the digest
	// of its bytes, without its pack.
	if c.store != nil {
		files := manifest.NewFiles(c.store)
		c.store, a.packed = files, files.Add
	}
	a.shelf = func(d blob.Digest) ([]byte, string, error) {
		if data, ok := e.Blobs[d]; ok {
			return data, "", nil
		}
		if why, ok := e.Left[d]; ok {
			return nil, why, nil
		}
		data, why, err := c.fetch(d)
		switch {
		case err != nil:
			return nil, "", err
		case why != "":
			e.Left[d] = why
		default:
			e.Blobs[d] = data
		}
		return data, why, nil
	}
	f, err := a.facts()
	if err != nil {
		return nil, err
	}
	if _, err := f.unconfirmed(e.Stated); err != nil {
		return nil, err
	}
	return e, nil
}

// imported states who imported a log into the store, which the collected commits do not
// record.
func (e *Evidence) imported(c *chain, upTo uint64) {
	for i := c.last(); i > upTo; i-- {
		for _, f := range slices.Backward(c.facts[i-1]) {
			if v, ok := f.What.(commitlog.Restoration); ok {
				e.Stated = append(slices.Clip(e.Stated), Fact{FactImported, fmt.Sprintf(
					"session %s, by %s on %s: %s", c.key.ID, v.By, f.Time.UTC().Format(time.RFC3339), v.Reason)})
				return
			}
		}
	}
}

// sign collects the signatures of the finished runs.
func (e *Evidence) sign(ctx context.Context, a *archive, of func(context.Context, run.ID) ([]Signature, error)) error {
	if of == nil {
		return nil
	}
	for _, r := range a.results() {
		signatures, err := of(ctx, r.Run)
		if err != nil {
			return fmt.Errorf("dossier: signature of run %s: %w", r.Run, err)
		}
		e.Signatures = append(e.Signatures, signatures...)
	}
	return nil
}

type collector struct {
	ctx    context.Context
	log    commitlog.Log
	store  blob.Store
	o      CollectOptions
	chains map[session.Key]*chain
	size   int64
}

func newCollector(ctx context.Context, log commitlog.Log, blobs blob.Store, o *CollectOptions, commits, contents int64) *collector {
	c := &collector{ctx: ctx, log: log, store: blobs, chains: map[session.Key]*chain{}}
	if o != nil {
		c.o = *o
	}
	c.o.Commits, c.o.Blobs = cmp.Or(c.o.Commits, commits), cmp.Or(c.o.Blobs, contents)
	return c
}

// take adds the first commits of a log, with the event data stored in blobs.
func (e *Evidence) take(c *chain, upTo uint64) {
	l := Log{Session: c.key.ID}
	for _, entry := range c.entries[:upTo] {
		l.Commits = append(l.Commits, entry.Raw)
		for _, ev := range entry.Commit.Events {
			if !ev.Blob.Digest.IsZero() {
				e.Blobs[ev.Blob.Digest] = []byte(ev.Data)
			}
		}
	}
	e.Logs = append(e.Logs, l)
}

// chain reads a session's whole log and returns nil if there is none. It fails with
// session.ErrNotFound for the first session.
func (c *collector) chain(k session.Key) (*chain, error) {
	if ch, ok := c.chains[k]; ok {
		return ch, nil
	}
	ch := &chain{key: k}
	for e, err := range c.log.Read(c.ctx, k, commitlog.Position{}) {
		if err != nil {
			return nil, fmt.Errorf("dossier: read %s: %w", k, err)
		}
		if c.size += int64(len(e.Raw)); c.size > c.o.Commits {
			return nil, fmt.Errorf("%w: more than %d bytes; raise CollectOptions.Commits", ErrTooLarge, c.o.Commits)
		}
		if err := ch.add(e); err != nil {
			return nil, err
		}
	}
	if len(ch.entries) == 0 {
		if len(c.chains) == 0 {
			return nil, fmt.Errorf("dossier: home session %s: %w", k, session.ErrNotFound)
		}
		ch = nil
	}
	c.chains[k] = ch
	return ch, nil
}

// tooMuch is the reason for a blob beyond the limit.
const tooMuch = "the dossier's limit of contents is reached"

// fetch reads a blob, or returns the reason why it is missing.
func (c *collector) fetch(d blob.Digest) (data []byte, why string, err error) {
	if c.store == nil {
		return nil, "the exporter had no blob store", nil
	}
	r, err := c.store.Get(c.ctx, d)
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(r, c.o.Blobs+1))
		if closeErr := r.Close(); err == nil {
			err = closeErr
		}
	}
	switch {
	case c.ctx.Err() != nil:
		return nil, "", fmt.Errorf("dossier: read blob %s: %w", d.Short(), c.ctx.Err())
	case errors.Is(err, blob.ErrNotFound):
		return nil, "it is no longer stored", nil
	case errors.Is(err, blob.ErrCorrupt):
		return nil, "what is stored does not match its digest", nil
	case err != nil:
		return nil, "", fmt.Errorf("dossier: read blob %s: %w", d.Short(), err)
	case int64(len(data)) > c.o.Blobs:
		return nil, tooMuch, nil
	case blob.Sum(data) != d:
		return nil, "what is stored does not match its digest", nil
	}
	c.o.Blobs -= int64(len(data))
	return data, "", nil
}
