// Package retention archives trees of sessions that nobody uses any more, purges
// them, and brings them back.
//
//	outcomes, err := retention.Prune(ctx, conn, &retention.Options{
//		Keep: func(session.Tenant) (time.Duration, bool) { return 30 * 24 * time.Hour, true },
//		Dir:  "archives",
//	})
//
// A tree goes in this order, each step of which may be the last one before a
// crash, since the next [Prune] finds how far it came from the logs and the
// directory alone:
//
//  1. Each of its sessions gets a commit with session.archived. The log's
//     compare-and-set decides whether somebody else wrote meanwhile, and after
//     it no run, message or step is taken: it is the fence.
//  2. Whoever read the tree before may still fork it: that is waited for, and
//     the logs are read again. A tree that grew is let go with session.restored.
//  3. The archive is written, synced, renamed, read back and verified.
//  4. The logs are purged but for those last commits, the tombstones, which keep
//     the hash of each head; and their snapshots.
//
// What stays: aliases, so that no id is used twice; lineage and results, as long
// as their streams keep them; blobs, because other trees may name them. The
// archive holds all blobs that its commits name.
//
// The package holds policy and order. What is stored is up to natsbus, how the
// file looks to dossier.
package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/dossier"
	"github.com/rathcluster/rath/natsbus"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// DefaultGrace is how long a fence stands before its tree is purged, where
// others write to the store: longer than it takes to begin a fork of what was
// read before, with all attempts to store it.
const DefaultGrace = 60 * time.Second

// Options say what is pruned. Keep is required, and Dir unless DryRun is set.
type Options struct {
	// Keep is how long a tenant's trees are kept after their last commit; false
	// keeps them for ever.
	Keep func(session.Tenant) (time.Duration, bool)
	// Tenant limits it to one tenant; "" means all.
	Tenant session.Tenant
	// Dir is where the archives are written; it is created if absent.
	Dir string
	// DryRun only tells what would be done.
	DryRun bool
	// Grace is how long a fence stands before its tree is purged; negative is
	// none, for a store that nobody else has open. Zero means DefaultGrace.
	Grace time.Duration
	// By is who prunes, for the logs; "" is "operator".
	By string
	// Limit is how many bytes of commits, and how many of blobs, one archive
	// holds at most; 0 means dossier.DefaultTree. A larger tree is kept.
	Limit int64
	// Stated goes into each archive.
	Stated []dossier.Fact

	// after is called after each step; an error stops everything there.
	after func(step string) error
}

// State is what became of a tree.
type State string

// The states of a tree.
const (
	Kept     State = "kept"     // Reason says why
	Due      State = "due"      // of a dry run: it would be archived
	Archived State = "archived" // and purged
	Failed   State = "failed"   // Reason says why; it stays fenced until the next attempt
)

// Outcome tells of one tree.
type Outcome struct {
	natsbus.Tree
	State  State
	Reason string
	File   string // of the archive, with the directory
	Size   int64  // of the file
}

// Prune archives and purges what is due, and returns what became of each tree
// that is stored, the longest unused first. Trees that are purged already are
// left out. An error ends it; the outcomes up to there are returned too. The
// connection has to store, and needs the rights of an operator unless
// Options.DryRun is set: natsbus.ErrDenied.
func Prune(ctx context.Context, c *natsbus.Conn, opts *Options) ([]Outcome, error) {
	o := *opts
	o.Grace, o.By, o.Limit = cmp.Or(o.Grace, DefaultGrace), cmp.Or(o.By, "operator"), cmp.Or(o.Limit, dossier.DefaultTree)
	if o.after == nil {
		o.after = func(string) error { return nil }
	}
	p := pruning{c: c, o: o, now: time.Now(), lineage: map[string]uint64{}}
	if !o.DryRun {
		if err := c.MayPurge(ctx); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("retention: directory of archives: %w", err)
		}
	}
	err := p.run(ctx)
	return p.out, err
}

// pruning is one Prune.
type pruning struct {
	c       *natsbus.Conn
	o       Options
	now     time.Time
	lineage map[string]uint64 // how far it is published, by event stream
	out     []Outcome
}

func (p *pruning) run(ctx context.Context) error {
	trees, err := p.c.Trees(ctx, p.o.Tenant)
	if err != nil {
		return err
	}
	fenced := false
	for _, t := range trees {
		if !slices.ContainsFunc(t.Sessions, func(s natsbus.TreeSession) bool { return !s.Purged }) {
			continue // archived
		}
		out := Outcome{Tree: t}
		if out.Reason, err = p.keep(ctx, &t); err != nil {
			return err
		}
		switch {
		case out.Reason != "":
			out.State = Kept
			if fenced, purged := marks(&t); fenced > 0 && purged == 0 && !p.o.DryRun {
				err = p.lift(ctx, &t, out.Reason)
			}
		case p.o.DryRun:
			out.State, out.File = Due, p.file(&t)
		default:
			out.State, out.File = Due, p.file(&t)
			if out.Reason, err = p.fence(ctx, &t, out.File); out.Reason != "" {
				out.State, out.File = Kept, ""
			} else {
				fenced = true
			}
		}
		p.out = append(p.out, out)
		if err != nil {
			return err
		}
	}
	if !fenced {
		return nil
	}
	if err := p.wait(ctx); err != nil {
		return err
	}
	return p.purgeAll(ctx)
}

// wait lets the forks of those come who read a tree before its fence.
func (p *pruning) wait(ctx context.Context) error {
	if p.o.Grace < 0 {
		return nil
	}
	timer := time.NewTimer(p.o.Grace)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// marks counts the sessions that are fenced and stored, and those that are
// purged.
func marks(t *natsbus.Tree) (fenced, purged int) {
	for _, s := range t.Sessions {
		switch {
		case s.Purged:
			purged++
		case s.Archived != nil:
			fenced++
		}
	}
	return fenced, purged
}

// keep says why a tree is kept, "" if it is due. A tree that was fenced before
// was due then.
func (p *pruning) keep(ctx context.Context, t *natsbus.Tree) (string, error) {
	if t.Busy != "" {
		return t.Busy, nil
	}
	if fenced, purged := marks(t); fenced+purged > 0 {
		return "", nil
	}
	keep, ok := p.o.Keep(t.Tenant)
	if !ok {
		return "tenant " + string(t.Tenant) + " keeps everything", nil
	}
	if age := p.now.Sub(t.Last); age < keep {
		return fmt.Sprintf("used %s ago, kept for %s", span(age), span(keep)), nil
	}
	if t.Bytes > p.o.Limit {
		return fmt.Sprintf("its commits have %d bytes, an archive holds %d", t.Bytes, p.o.Limit), nil
	}
	for _, s := range t.Sessions {
		g, part, ok := s.ID.Locate()
		if !ok {
			return fmt.Sprintf("session %s names no event stream", s.ID), nil
		}
		stream := natsbus.EventStream(g, part)
		at, known := p.lineage[stream]
		if !known {
			var err error
			if at, err = p.c.LineageOf(ctx, s.ID); err != nil {
				return "", err
			}
			p.lineage[stream] = at
		}
		if at < s.At.Token {
			return "its lineage is not published yet: start a node", nil
		}
	}
	return "", nil
}

// span writes a duration for people.
func span(d time.Duration) string {
	switch {
	case d >= 48*time.Hour && d%(24*time.Hour) == 0, d >= 100*24*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%.1f days", d.Hours()/24)
}

// file is where the archive of a tree goes: under the name that its first
// fence says, if there is one.
func (p *pruning) file(t *natsbus.Tree) string {
	name := fmt.Sprintf("%s-%s-%s.json", t.Tenant, t.Root, p.now.UTC().Format("20060102T150405Z"))
	for _, s := range t.Sessions {
		if s.Archived != nil && s.Archived.File == filepath.Base(s.Archived.File) {
			name = s.Archived.File
			break
		}
	}
	return filepath.Join(p.o.Dir, name)
}

// fence archives each session of a tree in its log. Where one does not let it
// the tree is let go, and the reason returned.
func (p *pruning) fence(ctx context.Context, t *natsbus.Tree, file string) (reason string, err error) {
	store := direct(p.c)
	for i, s := range t.Sessions {
		if s.Archived != nil {
			continue
		}
		k := session.Key{Tenant: t.Tenant, ID: s.ID}
		err := store.Apply(ctx, run.Signal{To: k, Archive: &session.Archival{By: p.o.By, File: filepath.Base(file)}})
		switch {
		case errors.Is(err, session.ErrArchived):
			// Another one who prunes; the logs are read again.
		case errors.Is(err, run.ErrState), errors.Is(err, session.ErrConflict), errors.Is(err, session.ErrTooOld):
			return err.Error(), p.lift(ctx, t, err.Error())
		case err != nil:
			return "", fmt.Errorf("retention: archive %s: %w", k, err)
		}
		if err := p.o.after(fmt.Sprintf("fence %d", i)); err != nil {
			return "", err
		}
	}
	return "", nil
}

// direct appends to logs beside the nodes that hold them: the compare-and-set
// decides. It folds each session anew, so that nothing is remembered.
func direct(c *natsbus.Conn) run.Store {
	return run.Direct(c.Log(), &run.DirectOptions{Incarnation: "operator"})
}

// lift lets the sessions of a tree go on that are fenced and not purged.
func (p *pruning) lift(ctx context.Context, t *natsbus.Tree, reason string) error {
	var ids []session.ID
	for _, s := range t.Sessions {
		if !s.Purged {
			ids = append(ids, s.ID)
		}
	}
	return goOn(ctx, p.c, t.Tenant, ids, session.Restoration{By: p.o.By, Reason: "not archived: " + reason})
}

// goOn lifts the fences of sessions whose logs are whole. Where none stands, and
// where another one lifts it at the same time, nothing is done. The log's end
// is asked first: an event that says that a session goes on follows only the one
// that archives it.
func goOn(ctx context.Context, c *natsbus.Conn, tenant session.Tenant, ids []session.ID, why session.Restoration) error {
	store := direct(c)
	for _, id := range ids {
		k := session.Key{Tenant: tenant, ID: id}
		if err := c.Archived(ctx, k); err == nil {
			continue
		} else if !errors.Is(err, session.ErrArchived) {
			return fmt.Errorf("retention: %w", err)
		}
		err := store.Apply(ctx, run.Signal{To: k, Restore: &why})
		if err != nil && !errors.Is(err, run.ErrState) {
			return fmt.Errorf("retention: let %s go on: %w", k, err)
		}
	}
	return nil
}

// purgeAll reads the logs again and archives and purges the trees that stand
// as they were fenced.
func (p *pruning) purgeAll(ctx context.Context) error {
	trees, err := p.c.Trees(ctx, p.o.Tenant)
	if err != nil {
		return err
	}
	now := map[session.Key]*natsbus.Tree{}
	for i := range trees {
		for _, s := range trees[i].Sessions {
			now[session.Key{Tenant: trees[i].Tenant, ID: s.ID}] = &trees[i]
		}
	}
	for i := range p.out {
		out := &p.out[i]
		if out.State != Due {
			continue
		}
		t := now[session.Key{Tenant: out.Tenant, ID: out.Sessions[0].ID}]
		if t == nil {
			return fmt.Errorf("retention: tree %s is gone", out.Root)
		}
		if err := p.finish(ctx, out, t); err != nil {
			out.State, out.Reason = Failed, err.Error()
			return err
		}
	}
	return nil
}

// finish archives and purges one tree, or lets it go.
func (p *pruning) finish(ctx context.Context, out *Outcome, t *natsbus.Tree) error {
	fenced, purged := marks(t)
	reason := t.Busy
	if reason == "" && fenced+purged < len(t.Sessions) {
		reason = "somebody used it meanwhile"
	}
	if purged > 0 && reason != "" {
		out.State, out.Reason = Failed, reason
		return nil
	}
	out.Tree = *t
	var size int64
	var err error
	if reason == "" {
		size, err = p.archive(ctx, t, out.File)
		if _, bad := errors.AsType[*dossier.Failure](err); bad || errors.Is(err, dossier.ErrTooLarge) || errors.Is(err, session.ErrBlob) {
			if purged > 0 {
				return err
			}
			reason = err.Error()
		} else if err != nil {
			return err
		}
	}
	if reason != "" {
		out.State, out.Reason, out.File = Kept, reason, ""
		return p.lift(ctx, t, reason)
	}
	out.Size = size
	// What came last is read from what came before, so it goes first.
	for i, s := range slices.Backward(t.Sessions) {
		if s.Purged {
			continue
		}
		if err := p.c.Purge(ctx, session.Key{Tenant: t.Tenant, ID: s.ID}, s.At); err != nil {
			return err
		}
		if err := p.o.after(fmt.Sprintf("purge %d", i)); err != nil {
			return err
		}
	}
	out.State = Archived
	return nil
}
