// Package retention archives trees of sessions that are not used any more, purges
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
//     compare-and-set decides whether another process wrote meanwhile, and after
//     it no run, message or step is taken: it is the fence.
//  2. A process that read the tree before may still fork it: that is waited for, and
//     the logs are read again. A tree that grew is let go with session.restored,
//     and so is one whose archive cannot be written.
//  3. The archive is written, synced, renamed, read back and verified.
//  4. The logs are purged but for those last commits, the tombstones, which keep
//     the hash of each head; and their snapshots.
//  5. The results of runs whose log is purged are removed, when the alias of the run is
//     marked. That begins with the stream of results and the tombstones, whichever prune
//     left them. Results of tasks that no log took go when they are as old.
//
// What stays: aliases, so that no id is used twice; lineage, as long as its stream keeps
// it; blobs, because other trees may name them. The archive holds all blobs that its
// commits name.
//
// Prunes of the same tree at the same time are harmless. One of them archives it,
// and the others tell that another one does: at the fence the log decides who it
// is, and who lets a tree go begins where a purge begins, so that one of the two
// finds that the other was there.
//
// One prune works at several trees at the same time. Each of them goes in the order
// above; only what is waited for, and the second reading, is done once for all.
//
// The package holds policy and order. What is stored is up to internal/nats, how the
// file looks to dossier.
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

// DefaultGrace is how long a fence stands before its tree is purged, where
// others write to the store: longer than it takes to begin a fork of what was
// read before, with all attempts to store it.
const DefaultGrace = 60 * time.Second

// Options say what is pruned. Keep is required, and Dir unless DryRun is set.
type Options struct {
	// Keep is how long a tenant's trees are kept after their last commit; false
	// keeps them for ever, and lets those go on that were fenced before.
	Keep func(session.Tenant) (time.Duration, bool)
	// Tenant limits it to one tenant; "" means all.
	Tenant session.Tenant
	// Dir is where the archives are written; it is created if absent. That it
	// can be written is tried before anything is fenced.
	Dir string
	// DryRun only tells what would be done.
	DryRun bool
	// Grace is how long a fence stands before its tree is purged; negative is
	// none, for a store that no other process has open. Zero means DefaultGrace.
	Grace time.Duration
	// By is who prunes, for the logs; "" is "operator".
	By string
	// Limit is how many bytes of commits, and how many of blobs, one archive
	// holds at most; 0 means dossier.DefaultTree. Its file has at most twice as
	// many bytes. A larger tree is kept.
	Limit int64
	// Stated goes into each archive.
	Stated []dossier.Fact
	// Progress is told how many trees of how many are through: first with Fenced, when
	// they are fenced or kept, then with Archived, of those that were fenced; at last with
	// Freed how many results are. It is
	// called by one goroutine at a time, and holds up the others; nil is none.
	Progress func(to State, done, all int)
	// Freed is called at the end with the number of results that were removed; nil is none.
	Freed func(results int)

	// after is called after each step, also by several goroutines at the same time; an
	// error stops everything there, as a crash would.
	after func(step string) error
	// part is in the names of files while they are written; "" is drawn, so that
	// no other prune has the same ones.
	part string
}

// State is what became of a tree.
type State string

// The states of a tree.
const (
	Kept     State = "kept"     // Reason says why
	Due      State = "due"      // of a dry run: it would be archived
	Archived State = "archived" // and purged
	// Fenced is a tree that Prune did not come back to before an error ended it:
	// it takes nothing until the next Prune finishes it or lets it go on.
	Fenced State = "fenced"
	// Failed is a tree that could not be archived, Reason says why. It goes on,
	// unless it is purged in part or Reason says that it stays fenced.
	Failed State = "failed"
	// Freed is no state of a tree: Options.Progress gets it for results.
	Freed State = "freed"
)

// Outcome tells of one tree.
type Outcome struct {
	archive.Tree
	State  State
	Reason string
	File   string // of the archive, with the directory; "" while there is none, but for Due
	Size   int64  // of the file
}

// Prune archives and purges what is due, and returns what became of each tree
// that is stored, the longest unused first. Trees that are purged already are
// left out. What goes wrong with one tree is told in its outcome, and the others
// go on. An error is what ended all: the directory cannot be written, the store
// does not answer, ctx has ended; the outcomes up to there are returned too. The
// connection has to store, and needs the rights of an operator unless
// Options.DryRun is set: conn.ErrDenied.
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
			return nil, fmt.Errorf("retention: the directory of the archives cannot be written, nothing is fenced: %w; name another one", err)
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
	// purged are the sessions that are purged.
	purged map[session.Key]bool

	asking  sync.Mutex
	lineage map[string]uint64 // how far it is published, by event stream; asking guards it

	large sync.Mutex // is held for a tree of which one at a time is in memory
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

// treesAtOnce bounds the trees that are fenced, or archived and purged, at the same
// time. Each waits for the disks most of the time, its own and those of the servers,
// which sync the writes of several together.
const treesAtOnce = 16

// each calls do for the numbers below n in their order, for treesAtOnce at a time, and
// reports progress. After an error it begins with no further one, and waits for those
// that are under way. It returns with how many it began, and the error of the first.
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

// decide keeps a tree, or fences it.
func (p *pruning) decide(ctx context.Context, out *Outcome) (err error) {
	t := &out.Tree
	fenced, purged := marks(t)
	if fenced > 0 {
		out.State = Fenced // by one who was cut off
	}
	if out.Reason, err = p.keep(ctx, t); err != nil {
		return err
	}
	switch {
	case out.Reason != "" && fenced > 0 && purged == 0 && !p.o.DryRun:
		err = p.lift(ctx, t, out.Reason)
	case out.Reason != "":
	case p.o.DryRun:
		out.State, out.File = Due, p.file(t)
		return nil
	default:
		out.State, out.File = Fenced, p.file(t)
		out.Reason, err = p.fence(ctx, t, out.File)
	}
	if err == nil && out.Reason != "" {
		out.State, out.File = Kept, ""
	}
	return err
}

// failed tells of a tree that an error stopped, and lets it go on if nothing of
// it is purged. It returns the error if that ends everything: the other trees
// would meet it too, each after waiting.
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

// standing tells of the trees that an error which ended all left as they were,
// and names no archive that is not there.
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

// step has come to the end of a step.
func (p *pruning) step(name string) error {
	if err := p.o.after(name); err != nil {
		return stopped{err}
	}
	return nil
}

// keep says why a tree is kept, "" if it is due. A tree that was fenced before
// was due then, but a tenant that keeps everything has it back, and so has one who
// used meanwhile what was not fenced yet.
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

// lineageOf reports how far the lineage of an event stream is published, in which a
// session is. Each stream is asked once.
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

// file is where the archive of a tree goes: under the name that its first
// fence says, if there is one.
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
