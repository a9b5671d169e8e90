// Package retention archives, purges and restores unused trees of sessions.
//
//	outcomes, err := retention.Prune(ctx, conn, &retention.Options{
//		Keep: func(session.Tenant) (time.Duration, bool) { return 30 * 24 * time.Hour, true },
//		Dir:  "archives",
//	})
//
// Prune handles a tree in the following order. A crash is harmless after each step: the
// next [Prune] determines the progress from the logs and the directory alone.
//
//  1. Each session of the tree gets a commit with session.archived. The log's
//     compare-and-set decides whether another process wrote meanwhile. The commit is
//     the fence: after it the session accepts no run, message or step.
//  2. A process that read the tree before may still fork it. Prune waits for such
//     forks and reads the logs again. It releases a tree that grew, or whose archive
//     cannot be written, with session.restored.
//  3. The archive is written, synced, renamed, read back and verified.
//  4. The logs are purged except those last commits, the tombstones, which keep
//     the hash of each head. Snapshots are purged too.
//  5. The results of runs whose log is purged are removed, once the alias of the run is
//     marked. This step begins with the stream of results and the tombstones, whichever
//     prune left them. Results of tasks that no log claimed are removed at the same age.
//
// Aliases stay, so that no id is used twice; lineage stays as long as its stream keeps it;
// blobs stay, because other trees may reference them. The archive holds all blobs that its
// commits reference.
//
// Concurrent prunes of the same tree are harmless. One of them archives it, and the others
// report that. The log decides at the fence which one it is. A prune that releases a tree
// begins where a purge begins, so that one of the two detects the other.
//
// One prune works at several trees concurrently, each in the order above. It waits and
// reads the logs again once for all of them.
//
// The package holds policy and order. Package internal/nats stores the data; dossier
// defines the file format.
package retention

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/archive"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// DefaultGrace is the time between a fence and the purge of its tree, if others write to
// the store. It exceeds the time to begin a fork from an earlier read, with all attempts to
// store it.
const DefaultGrace = 60 * time.Second

// Options are the options of Prune. Keep is required, and Dir unless DryRun is set.
type Options struct {
	// Keep is how long a tenant's trees are kept after their last commit; false keeps them
	// for ever, and resumes trees that were fenced before.
	Keep func(session.Tenant) (time.Duration, bool)
	// Tenant limits the prune to one tenant; "" means all.
	Tenant session.Tenant
	// Dir is the directory of the archives; it is created if absent. Prune verifies that it
	// is writable before it fences a tree.
	Dir string
	// DryRun reports the outcomes and changes nothing.
	DryRun bool
	// Grace is the time between a fence and the purge of its tree; negative is none, for a
	// store that no other process has open. Zero means DefaultGrace.
	Grace time.Duration
	// By is the user who prunes, for the logs; "" is "operator".
	By string
	// Limit is the maximum size in bytes of the commits, and of the blobs, of one archive;
	// 0 means dossier.DefaultTree. Its file has at most twice as many bytes. A larger tree
	// is kept.
	Limit int64
	// Stated goes into each archive.
	Stated []dossier.Fact
	// Progress, if not nil, is called with the number of finished trees and of all trees:
	// first with Fenced, when they are fenced or kept, then with Archived, of the fenced
	// ones. At last it is called with Freed and the number of freed results. One goroutine
	// at a time calls it and blocks the others.
	Progress func(to State, done, all int)
	// Freed is called at the end with the number of results that were removed; nil is none.
	Freed func(results int)

	// after is called after each step, also concurrently; an error stops everything there,
	// as a crash would.
	after func(step string) error
	// part is part of the names of files while they are written; "" draws a random one, so
	// that no other prune uses the same names.
	part string
}

// State is the outcome of a tree.
type State string

// The states of a tree.
const (
	Kept     State = "kept"     // Reason is the reason
	Due      State = "due"      // of a dry run: it would be archived
	Archived State = "archived" // and purged
	Removed  State = "removed"  // the log of a key or of an event, without use
	// Fenced is a tree that Prune did not finish before an error ended it: it accepts no
	// work until the next Prune finishes or resumes it.
	Fenced State = "fenced"
	// Failed is a tree that could not be archived for Reason. It resumes, unless it is
	// purged in part or Reason states that it stays fenced.
	Failed State = "failed"
	// Freed is no state of a tree: Options.Progress gets it for results.
	Freed State = "freed"
)

// Outcome is the outcome of one tree.
type Outcome struct {
	archive.Tree
	State  State
	Reason string
	File   string // path of the archive; "" while none exists, except for Due
	Size   int64  // of the file
}

// Prune archives and purges the trees that are due, and returns the outcome of each stored
// tree, the longest unused first. It omits trees that are already purged. An error with one
// tree is reported in its outcome, and the other trees continue. Prune returns an error
// that ended all work, with the outcomes up to there: the directory cannot be written, the
// store does not answer, or ctx has ended. The connection has to store, and needs the
// rights of an operator unless Options.DryRun is set: conn.ErrDenied.
func Prune(ctx context.Context, c *api.Conn, opts *Options) ([]Outcome, error) {
	o := *opts
	o.Grace, o.By, o.Limit = cmp.Or(o.Grace, DefaultGrace), cmp.Or(o.By, "operator"), cmp.Or(o.Limit, dossier.DefaultTree)
	o.part = cmp.Or(o.part, rand.Text())
	if o.after == nil {
		o.after = func(string) error { return nil }
	}
	if o.Freed == nil {
		o.Freed = func(int) {}
	}
	if o.Progress == nil {
		o.Progress = func(State, int, int) {}
	}
	p := pruning{c: c, o: o, now: time.Now(), purged: map[session.Key]bool{}, lineage: map[string]uint64{}}
	if !o.DryRun {
		if err := c.Archive.MayPurge(ctx); err != nil {
			return nil, err
		}
		if err := writable(o.Dir); err != nil {
			return nil, fmt.Errorf("retention: the directory of the archives is not writable, no session was fenced: %w; name another one", err)
		}
	}
	err := p.run(ctx)
	if err == nil && !o.DryRun {
		var n int
		n, err = p.free(ctx)
		o.Freed(n)
	}
	p.standing(err)
	return p.out, err
}

// pruning is one Prune.
type pruning struct {
	c     *api.Conn
	o     Options
	now   time.Time
	parts map[string][]string
	out   []Outcome
	// purged are the purged sessions.
	purged map[session.Key]bool

	asking  sync.Mutex
	lineage map[string]uint64 // published sequences, by event stream; asking guards it

	large sync.Mutex // held for a large tree, of which one at a time is in memory
}

func (p *pruning) run(ctx context.Context) error {
	trees, err := p.c.Archive.Trees(ctx, p.o.Tenant)
	if err != nil {
		return err
	}
	for _, t := range trees {
		for _, s := range t.Sessions {
			if s.Purged {
				p.purged[session.Key{Tenant: t.Tenant, ID: s.ID}] = true
			}
		}
		if slices.ContainsFunc(t.Sessions, func(s archive.TreeSession) bool { return !s.Purged }) { // else it is archived
			p.out = append(p.out, Outcome{Tree: t})
		}
	}
	begun, err := p.each(Fenced, len(p.out), func(i int) error {
		out := &p.out[i]
		if err := p.decide(ctx, out); err != nil {
			return p.failed(ctx, out, &out.Tree, err)
		}
		return nil
	})
	p.out = p.out[:begun]
	if err != nil || !slices.ContainsFunc(p.out, func(out Outcome) bool { return out.State == Fenced }) {
		return err
	}
	if err := p.wait(ctx); err != nil {
		return err
	}
	return p.purgeAll(ctx)
}

// treesAtOnce bounds the trees that are fenced, or archived and purged, concurrently. Each
// waits for the disks most of the time, its own and the servers', which sync the writes of
// several together.
const treesAtOnce = 16

// each calls do for the numbers below n in their order, treesAtOnce concurrently, and
// reports progress. After an error it begins no further call, and waits for the calls in
// progress. It returns the number of calls begun, and the first error.
func (p *pruning) each(to State, n int, do func(i int) error) (begun int, err error) {
	var mu sync.Mutex // guards done and first
	done, first := 0, n
	errs := make([]error, n)
	room := make(chan struct{}, treesAtOnce)
	var work sync.WaitGroup
	for ; begun < n; begun++ {
		room <- struct{}{}
		mu.Lock()
		failed := first < n
		mu.Unlock()
		if failed {
			break
		}
		i := begun
		work.Go(func() {
			defer func() { <-room }()
			errs[i] = do(i)
			mu.Lock()
			defer mu.Unlock()
			if errs[i] != nil {
				first = min(first, i)
				return
			}
			done++
			p.o.Progress(to, done, n)
		})
	}
	work.Wait()
	if first < n {
		err = errs[first]
	}
	return begun, err
}

// decide fences a tree, or records why it is kept.
func (p *pruning) decide(ctx context.Context, out *Outcome) (err error) {
	t := &out.Tree
	fenced, purged := marks(t)
	if fenced > 0 {
		out.State = Fenced // by a prune that was cut off
	}
	if out.Reason, err = p.keep(ctx, t); err != nil {
		return err
	}
	switch {
	case out.Reason != "" && fenced > 0 && purged == 0 && !p.o.DryRun:
		err = p.lift(ctx, t, out.Reason)
	case out.Reason != "":
	case p.o.DryRun:
		if out.State = Due; !t.OfKey {
			out.File = p.file(t)
		}
		return nil
	case t.OfKey:
		out.State = Removed
		out.Reason, err = p.remove(ctx, t)
	default:
		out.State, out.File = Fenced, p.file(t)
		out.Reason, err = p.fence(ctx, t, out.File)
	}
	if err == nil && out.Reason != "" {
		out.State, out.File = Kept, ""
	}
	return err
}

// failed records the error that stopped a tree, and resumes the tree if none of it is
// purged. It returns an error that ends all work: the other trees would meet it too, each
// after waiting.
func (p *pruning) failed(ctx context.Context, out *Outcome, t *archive.Tree, err error) error {
	_, stop := errors.AsType[stopped](err)
	if p.o.DryRun || stop || ctx.Err() != nil || errors.Is(err, session.ErrUnavailable) || errors.Is(err, conn.ErrDenied) {
		return err
	}
	out.State, out.Reason = Failed, err.Error()
	if _, purged := marks(t); purged > 0 {
		return nil
	}
	err = p.lift(ctx, t, out.Reason)
	if a, ok := errors.AsType[*session.ArchivedError](err); ok && !a.Fenced {
		out.State, out.Reason, out.File = Kept, elsewhere, ""
	} else if err != nil {
		out.Reason += "; it stays fenced: " + err.Error()
	}
	return nil
}

// standing sets the outcome of the trees that an error which ended all work left
// unfinished, and clears the names of archives that do not exist.
func (p *pruning) standing(ended error) {
	for i := range p.out {
		out := &p.out[i]
		if ended != nil && (out.State == Fenced || out.State == "") {
			out.State, out.Reason = cmp.Or(out.State, Failed), ended.Error()
		}
		if _, err := os.Stat(out.File); out.State != Due && err != nil {
			out.File = ""
		}
	}
}

// stopped is an error of Options.after.
type stopped struct{ error }

func (s stopped) Unwrap() error { return s.error }

// step marks the end of a step.
func (p *pruning) step(name string) error {
	if err := p.o.after(name); err != nil {
		return stopped{err}
	}
	return nil
}

// keep returns the reason a tree is kept, or "" if it is due. A tree that is already fenced
// was due when it was fenced. It is released if its tenant keeps everything, or has since
// used a session that was not yet fenced.
func (p *pruning) keep(ctx context.Context, t *archive.Tree) (string, error) {
	if t.Busy != "" {
		return t.Busy, nil
	}
	fenced, purged := marks(t)
	keep, ok := p.o.Keep(t.Tenant)
	if !ok && purged == 0 {
		return "tenant " + string(t.Tenant) + " keeps everything", nil
	}
	if purged > 0 || fenced > 0 && !usedSince(t) {
		return "", nil
	}
	if age := p.now.Sub(t.Last); age < keep {
		return fmt.Sprintf("used %s ago, kept for %s", span(age), span(keep)), nil
	}
	if t.Bytes > p.o.Limit {
		return fmt.Sprintf("its commits have %d bytes, an archive holds %d", t.Bytes, p.o.Limit), nil
	}
	if t.OfKey { // it has no lineage
		return "", nil
	}
	for _, s := range t.Sessions {
		g, part, ok := s.ID.Locate()
		if !ok {
			return fmt.Sprintf("session %s names no event stream", s.ID), nil
		}
		stream := streams.EventStream(g, part)
		at, err := p.lineageOf(ctx, stream, s.ID)
		if err != nil {
			return "", err
		}
		if at < s.At.Token {
			return "its lineage is not published yet: start a node", nil
		}
	}
	return "", nil
}

// lineageOf returns the sequence up to which the lineage of a session's event stream is
// published. It asks once per stream.
func (p *pruning) lineageOf(ctx context.Context, stream string, id session.ID) (uint64, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	at, known := p.lineage[stream]
	if !known {
		var err error
		if at, err = p.c.Archive.LineageOf(ctx, id); err != nil {
			return 0, err
		}
		p.lineage[stream] = at
	}
	return at, nil
}

// usedSince reports whether a tree was used after its first fence.
func usedSince(t *archive.Tree) bool {
	return slices.ContainsFunc(t.Sessions, func(s archive.TreeSession) bool {
		return s.Archived != nil && t.Last.After(s.Archived.Time)
	})
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

// file returns the path of a tree's archive. The name in the first fence takes precedence,
// if there is one.
func (p *pruning) file(t *archive.Tree) string {
	name := fmt.Sprintf("%s-%s-%s.json", t.Tenant, t.Root, p.now.UTC().Format("20060102T150405Z"))
	for _, s := range t.Sessions {
		if s.Archived != nil && s.Archived.File == filepath.Base(s.Archived.File) {
			name = s.Archived.File
			break
		}
	}
	return filepath.Join(p.o.Dir, name)
}
