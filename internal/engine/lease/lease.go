package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/sandbox/egress"
	"github.com/rathcluster/rath/internal/sandbox/overlay"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// Owner is an execution that holds leases.
type Owner struct {
	Workspaces *Workspaces
	Blobs      blob.Store
	Epoch      uint64   // of the writer of the run's log
	Allowed    []string // protected paths that its calls may change
	// Forked reports whether a session has the same head as at its fork, like its
	// siblings.
	Forked func(k session.Key, head blob.Digest) bool
}

// Lease is the right to drive one session's sandbox: a private directory with the
// session's workspace, and the sandbox over it. The first tool that needs the sandbox
// opens it. While a run of the session executes, its execution has the lease; between
// runs [Kept] has it, for as long as the session's actor keeps its epoch. A session whose
// head is not the directory's gets a fresh directory; files are never restored over an
// old one.
type Lease struct {
	mu    sync.Mutex
	dir   string
	box   sandbox.Sandbox
	terms session.Placement // that box was opened for, without its head
	head  blob.Digest
	n     int
	// dirty means that a call that may change files has used the directory since the last
	// snapshot.
	dirty bool
	proxy *egress.Proxy // nil without a list of hosts
	// beside has the services that run while box is open; nil is none.
	beside *services
	// take reads the touched files in dir. If a process of a call can outlast the call,
	// as a service does, take reads all files: such a process can change a mapped file
	// without a trace.
	take     workspace.Take
	outlasts bool // box had a process that outlasts calls
	// remove removes dir, once the sandbox is closed.
	remove func() error
}

// At returns the session's sandbox with its files at p.Head, for a call that may change
// them if mutates is set. A snapshot follows only a sandboxed call.
func (l *Lease) At(ctx context.Context, o *Owner, k session.Key, p session.Placement, mutates bool) (sandbox.Sandbox, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	terms := p
	terms.Head, terms.Epoch = blob.Digest{}, o.Epoch
	if l.box == nil || l.head != p.Head || l.terms != terms {
		if err := l.open(ctx, o, k, p, terms); err != nil {
			return nil, err
		}
	}
	err := l.beside.up(ctx)
	if err == nil {
		err = l.sync(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	l.dirty = l.dirty || mutates
	return l.box, nil
}

// open opens the sandbox over a fresh directory, after closing the previous one. l.mu is
// held.
func (l *Lease) open(ctx context.Context, o *Owner, k session.Key, p, terms session.Placement) error {
	b, err := o.Workspaces.Backend(p)
	if err != nil {
		return err
	}
	spec, err := o.Workspaces.spec(ctx, b, p, o.Epoch)
	if err != nil {
		return err
	}
	list, err := sandbox.ParseServices(p.Services)
	if err != nil {
		return fmt.Errorf("flow: sandbox of %s: %w", k, err)
	}
	if err := l.close(); err != nil {
		return err
	}
	parent := filepath.Join(o.Workspaces.Dir, string(k.Tenant), string(k.ID))
	if err := removeOlder(parent, o.Epoch, l.n, o.Workspaces.Forks); err != nil {
		return err
	}
	l.n++
	l.dir = filepath.Join(parent, strconv.FormatUint(o.Epoch, 10)+"-"+strconv.Itoa(l.n))
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return fmt.Errorf("flow: workspace of %s: %w", k, err)
	}
	if err := l.checkout(ctx, o, b, k, p.Head); err != nil {
		return fmt.Errorf("flow: restore workspace %s of %s: %w", p.Head.Short(), k, err)
	}
	spec.Dir, spec.Owner = l.dir, k.String()
	if spec.Network.Listed() {
		if l.proxy, err = egress.New(&o.Workspaces.Egress, k.Tenant, spec.Network); err != nil {
			return errors.Join(fmt.Errorf("flow: open sandbox of %s: %w", k, err), l.remove())
		}
		spec.Proxy, spec.Authority = l.proxy.Serve, l.proxy.Authority()
	}
	box, err := b.Open(ctx, spec)
	if err != nil {
		return errors.Join(fmt.Errorf("flow: open sandbox of %s: %w", k, err), l.closeProxy(), l.remove())
	}
	if !box.Info().WholeTree || spec.Services {
		l.take = workspace.TakeAll(o.Blobs, l.dir)
	}
	if spec.Services {
		l.beside = newServices(ctx, box, list)
	}
	l.box, l.head, l.terms, l.dirty, l.outlasts = box, p.Head, terms, false, spec.Services
	return nil
}

// checkout fills the directory. If the sandbox supports it, a fork's directory is an
// overlay of its changes over a shared checkout. l.mu is held.
func (l *Lease) checkout(ctx context.Context, o *Owner, b sandbox.Backend, k session.Key, head blob.Digest) (err error) {
	if forks := o.Workspaces.Forks; forks != nil && o.Forked(k, head) {
		can, err := b.Probe(ctx)
		if err != nil {
			return err
		}
		if can.Mounts {
			l.take, l.remove, err = forks.open(ctx, o.Blobs, sharedHead{k.Tenant, head}, l.dir)
			if !errors.Is(err, overlay.ErrUnsupported) {
				return err
			}
			// The system limits the number of mounts.
		}
	}
	dir := l.dir
	l.remove = func() error { return sandbox.RemoveTree(dir) }
	l.take, err = workspace.Checkout(ctx, o.Blobs, head, dir)
	return err
}

// removeOlder removes the directories of former leases of a session below dir: those of
// lower epochs when this epoch opens its first.
func removeOlder(dir string, epoch uint64, opened int, forks *Forks) error {
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
		of, _, _ := strings.Cut(e.Name(), "-")
		if n, err := strconv.ParseUint(of, 10, 64); err == nil && n > epoch {
			continue
		}
		old := filepath.Join(dir, e.Name())
		if err := errors.Join(forks.unmount(old), sandbox.RemoveTree(old)); err != nil {
			return fmt.Errorf("flow: clean up %s: %w", dir, err)
		}
	}
	return nil
}

// Snapshot takes the directory's new head after a call that began at head before and may
// have changed files, and returns the changes that it reverted. A call that never had the
// directory open at that head changed no file. If the snapshot fails the directory is
// discarded, so that the next call starts from the previous head.
func (l *Lease) Snapshot(ctx context.Context, o *Owner, before blob.Digest) (blob.Digest, PutBack, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.box == nil || l.head != before {
		return before, nil, nil
	}
	if err := l.sync(ctx); err != nil {
		return l.head, nil, errors.Join(fmt.Errorf("flow: snapshot: %w", err), l.close())
	}
	head, back, err := l.take(ctx, l.head, o.Workspaces.Limits, o.Allowed)
	for try := 1; l.outlasts && changed(err) && try < takeTries; try++ {
		time.Sleep(takePause)
		head, back, err = l.take(ctx, l.head, o.Workspaces.Limits, o.Allowed)
	}
	if err != nil {
		return l.head, nil, errors.Join(fmt.Errorf("flow: snapshot: %w", err), l.close())
	}
	l.head, l.dirty = head, false
	return head, back, nil
}

// sync copies files that services wrote elsewhere into the directory. l.mu is held.
func (l *Lease) sync(ctx context.Context) error {
	s, elsewhere := l.box.(interface{ Sync(context.Context) error })
	if l.beside == nil || !elsewhere {
		return nil
	}
	return s.Sync(ctx)
}

// A service may replace a file while a snapshot reads it; the snapshot is then retried.
const (
	takeTries = 10
	takePause = 20 * time.Millisecond
)

// changed reports whether a snapshot failed because a file changed or disappeared while
// it was read.
func changed(err error) bool {
	refused, ok := errors.AsType[*workspace.RefusedError](err)
	return ok && (refused.Reason == workspace.Unstable || errors.Is(refused.Err, fs.ErrNotExist))
}

// close ends the sandbox and removes its directory. l.mu is held.
func (l *Lease) close() error {
	if l.box == nil {
		return nil
	}
	l.beside.end()
	err := l.box.Close()
	l.beside.wait()
	l.beside = nil
	err = errors.Join(err, l.closeProxy(), l.remove())
	if err == nil {
		// The session's folder is removed with its last directory.
		_ = os.Remove(filepath.Dir(l.dir))
	}
	l.box, l.take = nil, nil
	return err
}

// GiveUp closes a sandbox that died, so that the next call opens another one. If the
// sandbox cannot be removed now, the next epoch removes it.
func (l *Lease) GiveUp(box sandbox.Sandbox) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.box == box {
		_ = l.close()
	}
}

func (l *Lease) closeProxy() error {
	if l.proxy == nil {
		return nil
	}
	err := l.proxy.Close()
	l.proxy = nil
	return err
}

// Way returns a transport for requests of this process through the proxy of an open
// sandbox.
func (l *Lease) Way(box sandbox.Sandbox) (http.RoundTripper, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.box != box || l.proxy == nil {
		return nil, sandbox.ErrClosed
	}
	return l.proxy.Transport(), nil
}

// Requests returns the network requests of the commands since the last call of Requests.
// Of concurrent tool calls, the first one that ends gets the requests of all.
func (l *Lease) Requests() (list []journal.NetworkRequest, more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proxy == nil {
		return nil, 0
	}
	return l.proxy.Take()
}

// ServiceEnds returns the services that ended since its last call, as Requests does.
func (l *Lease) ServiceEnds() ServiceEnds {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.beside.take()
}

// ServiceLogs returns the output of the services since the last call, as Requests does.
func (l *Lease) ServiceLogs() []journal.ServiceLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.beside.logs()
}

// end closes the lease from outside. Files that cannot be removed now are removed by the
// next epoch, or when the node starts.
func (l *Lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.close()
}

// Shared records that a process runs in the lease's sandbox beside its calls.
func (l *Lease) Shared(o *Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.box != nil && !l.outlasts {
		l.take, l.outlasts = workspace.TakeAll(o.Blobs, l.dir), true
	}
}
