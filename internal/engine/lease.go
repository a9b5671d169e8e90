package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// lease is the right of this execution to drive one session's sandbox: a
// private directory that holds the session's workspace, and the sandbox over
// it. It is opened by the first tool that needs it and ends with the
// execution. A session whose head is not the directory's gets a fresh
// directory; nothing is ever put back over an old one.
type lease struct {
	mu   sync.Mutex
	dir  string
	box  sandbox.Sandbox
	head blob.Digest
	n    int
	// take reads what was touched in dir, and all of it where a process of a call could
	// outlast the call: what such a process has mapped it can change without a trace.
	take func(ctx context.Context, base blob.Digest, l workspace.Limits) (blob.Digest, error)
}

// leases are the leases of an execution, by session.
type leases struct {
	mu    sync.Mutex
	of    map[session.Key]*lease
	heads map[session.Key]blob.Digest // that sessions of the run were opened with
	first blob.Digest                 // the one that came first
}

// opened notes the files that a session was opened with. The code opens sessions in the
// same order on every execution.
func (l *leases) opened(k session.Key, head blob.Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heads == nil {
		l.heads, l.first = map[session.Key]blob.Digest{}, head
	}
	l.heads[k] = head
}

// openedWith returns the files that a session was opened with, or those that the run
// opened first.
func (l *leases) openedWith(k session.Key) blob.Digest {
	l.mu.Lock()
	defer l.mu.Unlock()
	if head, ok := l.heads[k]; ok {
		return head
	}
	return l.first
}

// get returns the lease of a session. Its directory need not be filled yet.
func (l *leases) get(k session.Key) *lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.of[k]
	if one == nil {
		if l.of == nil {
			l.of = map[session.Key]*lease{}
		}
		one = &lease{}
		l.of[k] = one
	}
	return one
}

// close ends all leases.
func (l *leases) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.of {
		one.mu.Lock()
		// What cannot be removed now is removed by the next epoch, or when the
		// node starts.
		_ = one.close()
		one.mu.Unlock()
	}
}

// backend returns the sandbox backend that a session was sent to.
func (ex *Execution) backend(p session.Placement) (sandbox.Backend, error) {
	if p.Backend == "" {
		return nil, flow.ErrNoSandbox
	}
	b, ok := ex.rt.Workspaces.Backends[p.Backend]
	if !ok {
		names := slices.Sorted(maps.Keys(ex.rt.Workspaces.Backends))
		return nil, fmt.Errorf("flow: this node has no sandbox backend %q, it has: %s", p.Backend, strings.Join(names, ", "))
	}
	return b, nil
}

// placed makes sure that a session which was sent somewhere has a workspace:
// the step takes the copy of the directory, if one was named, and commits the
// first head.
func (ex *Execution) placed(ctx context.Context, path run.Path, s session.Session) (session.Session, error) {
	p := s.Placement()
	if p.Backend == "" || p.Isolation != "" {
		return s, nil
	}
	st, err := ex.substep(ctx, s.Key(), s, journal.StepRequest{
		Path: path.Child("open"), Kind: journal.StepOpen, Name: p.Backend, Input: inputDigest(s, []string{p.Spec}),
	})
	if err != nil {
		return s, err
	}
	if st.decision == journal.Replay {
		if err := st.recorded(); err != nil {
			return s, err
		}
		ex.leases.opened(s.Key(), st.record.HeadAfter)
		return st.record.Session, nil
	}
	st.began = time.Now()
	st.fly(Opens, "")
	defer st.flight.end()
	err, ok := st.outcome(ex.firstHead(ctx, &p))
	if !ok {
		return s, err
	}
	if err != nil {
		return s, st.recordFailure(err, journal.StepCompleted{Summary: "sandbox refused"})
	}
	ack, err := st.commit(journal.StepCompleted{HeadAfter: p.Head, Summary: "opens " + p.Backend + ", " + p.Isolation}, session.PlacedEvent(p))
	if err != nil {
		return s, err
	}
	ex.leases.opened(s.Key(), p.Head)
	return ack.Session, nil
}

// firstHead fills in what the backend really offers and the head of the
// directory that the session was sent to.
func (ex *Execution) firstHead(ctx context.Context, p *session.Placement) error {
	b, err := ex.backend(*p)
	if err != nil {
		return err
	}
	c, err := b.Probe(ctx)
	if err != nil {
		return fmt.Errorf("flow: probe sandbox %s: %w", p.Backend, err)
	}
	p.Isolation, p.Epoch = string(c.Isolation), ex.granted.Epoch
	if !p.Head.IsZero() {
		return nil
	}
	dir := p.Spec
	if dir == "" {
		if dir, err = os.MkdirTemp("", "rath-empty-"); err != nil {
			return fmt.Errorf("flow: make an empty workspace: %w", err)
		}
		defer os.Remove(dir)
	}
	if p.Head, err = workspace.Snapshot(ctx, ex.blobs(), dir, blob.Digest{}, ex.rt.Workspaces.Limits); err != nil {
		return fmt.Errorf("flow: copy %s: %w", dir, err)
	}
	return nil
}

func (ex *Execution) blobs() blob.Store { return ex.rt.Blobs(ex.home.Tenant) }

// at returns the session's sandbox with its files at p.Head.
func (l *lease) at(ctx context.Context, ex *Execution, k session.Key, p session.Placement) (sandbox.Sandbox, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.box != nil && l.head == p.Head {
		return l.box, nil
	}
	b, err := ex.backend(p)
	if err != nil {
		return nil, err
	}
	can, err := b.Probe(ctx)
	if err != nil {
		return nil, fmt.Errorf("flow: probe sandbox %s: %w", p.Backend, err)
	}
	if err := l.close(); err != nil {
		return nil, err
	}
	parent := filepath.Join(ex.rt.Workspaces.Dir, string(k.Tenant), string(k.ID))
	if err := removeOlder(parent, ex.granted.Epoch, l.n); err != nil {
		return nil, err
	}
	l.n++
	l.dir = filepath.Join(parent, strconv.FormatUint(ex.granted.Epoch, 10)+"-"+strconv.Itoa(l.n))
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("flow: workspace of %s: %w", k, err)
	}
	if l.take, err = workspace.Checkout(ctx, ex.blobs(), p.Head, l.dir); err != nil {
		return nil, fmt.Errorf("flow: restore workspace %s of %s: %w", p.Head.Short(), k, err)
	}
	box, err := b.Open(ctx, sandbox.Spec{
		Dir: l.dir, Epoch: ex.granted.Epoch, Owner: k.String(), MinIsolation: ex.rt.Workspaces.MinIsolation,
		Limits: ex.rt.Workspaces.limits(can),
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("flow: open sandbox of %s: %w", k, err), sandbox.RemoveTree(l.dir))
	}
	if dir := l.dir; !box.Info().WholeTree {
		l.take = func(ctx context.Context, base blob.Digest, lim workspace.Limits) (blob.Digest, error) {
			return workspace.Snapshot(ctx, ex.blobs(), dir, base, lim)
		}
	}
	l.box, l.head = box, p.Head
	return box, nil
}

// removeOlder removes what former leases of a session left below dir: those of
// lower epochs when this epoch opens its first.
func removeOlder(dir string, epoch uint64, opened int) error {
	if opened > 0 {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("flow: clean up %s: %w", dir, err)
	}
	for _, e := range entries {
		old, _, _ := strings.Cut(e.Name(), "-")
		if n, err := strconv.ParseUint(old, 10, 64); err == nil && n > epoch {
			continue
		}
		if err := sandbox.RemoveTree(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("flow: clean up %s: %w", dir, err)
		}
	}
	return nil
}

// snapshot takes the directory's new head after a call that may have changed
// it, which began at a head. A call that never had the directory open at that
// head changed nothing. If the snapshot fails the directory is given up, so
// that the next call starts from the head before.
func (l *lease) snapshot(ctx context.Context, ex *Execution, before blob.Digest) (blob.Digest, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.box == nil || l.head != before {
		return before, nil
	}
	head, err := l.take(ctx, l.head, ex.rt.Workspaces.Limits)
	if err != nil {
		return l.head, errors.Join(fmt.Errorf("flow: snapshot: %w", err), l.close())
	}
	l.head = head
	return head, nil
}

// close ends the sandbox and removes its directory. l.mu is held.
func (l *lease) close() error {
	if l.box == nil {
		return nil
	}
	err := errors.Join(l.box.Close(), sandbox.RemoveTree(l.dir))
	if err == nil {
		// The session's folder goes with its last directory.
		_ = os.Remove(filepath.Dir(l.dir))
	}
	l.box, l.take = nil, nil
	return err
}
