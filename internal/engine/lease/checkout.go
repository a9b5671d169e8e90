package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/sandbox/overlay"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// Forks gives the forks of one head directories that share one checkout, which lives as
// long as any of them. A nil *Forks gives none. It is safe for concurrent use.
type Forks struct {
	dir string

	mu     sync.Mutex // guards the fields below
	n      int        // of names
	shared map[sharedHead]*checkout
}

// sharedHead is a head in a tenant's store: tenants share no checkouts.
type sharedHead struct {
	tenant session.Tenant
	head   blob.Digest
}

// checkout is a head that is checked out once.
type checkout struct {
	dir   string
	ready chan struct{} // closed when the fields err and take are set
	err   error
	take  func(fork string) workspace.Take
	users int // guarded by Forks.mu
}

// NewForks returns forks that keep their files below dir, which must be empty and on the
// file system of the forks' directories. It fails if overlays are unavailable here.
func NewForks(dir string) (*Forks, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("flow: forks of workspaces: %w", err)
	}
	if err := overlay.Try(dir); err != nil {
		return nil, err
	}
	return &Forks{dir: dir, shared: map[sharedHead]*checkout{}}, nil
}

// ClearForks unmounts the overlays that a former process left below a directory, so that
// it can be removed.
func ClearForks(dir string) error { return overlay.Clear(dir) }

// name returns an unused path.
func (f *Forks) name() string {
	f.n++
	return filepath.Join(f.dir, fmt.Sprint(f.n))
}

// open creates dir with the files of a head, and returns its Take and a function that
// removes dir.
func (f *Forks) open(ctx context.Context, b blob.Store, h sharedHead, dir string) (take workspace.Take, remove func() error, err error) {
	c, err := f.hold(ctx, b, h)
	if err != nil {
		return nil, nil, err
	}
	f.mu.Lock()
	changes := f.name()
	f.mu.Unlock()
	clean := func() error {
		return errors.Join(sandbox.RemoveTree(dir), sandbox.RemoveTree(changes), f.release(h, c))
	}
	err = errors.Join(os.Mkdir(changes, 0o700), os.Mkdir(dir, 0o700))
	if err == nil {
		err = overlay.Mount(c.dir, changes, dir)
	}
	if err != nil {
		return nil, nil, errors.Join(err, clean())
	}
	return c.take(dir), func() error {
		if err := overlay.Unmount(dir); err != nil {
			return err // the files below stay, for the next start
		}
		return clean()
	}, nil
}

// unmount unmounts a directory whose lease is lost. It succeeds if the directory is not
// mounted.
func (f *Forks) unmount(dir string) error {
	if f == nil {
		return nil
	}
	return overlay.Unmount(dir)
}

// hold returns the checkout of a head; the first caller makes it.
func (f *Forks) hold(ctx context.Context, b blob.Store, h sharedHead) (*checkout, error) {
	for {
		f.mu.Lock()
		c, found := f.shared[h]
		if !found {
			c = &checkout{dir: f.name(), ready: make(chan struct{})}
			f.shared[h] = c
		}
		c.users++
		f.mu.Unlock()
		if !found {
			c.take, c.err = workspace.CheckoutShared(ctx, b, h.head, c.dir)
			close(c.ready)
		}
		select {
		case <-c.ready:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.release(h, c))
		}
		if c.err == nil {
			return c, nil
		}
		if err := f.release(h, c); err != nil || !found {
			return nil, errors.Join(c.err, err)
		}
		// The caller that made it may have been cancelled.
	}
}

// release releases a checkout. The last release removes it.
func (f *Forks) release(h sharedHead, c *checkout) error {
	f.mu.Lock()
	c.users--
	last := c.users == 0
	if f.shared[h] == c && (last || c.failed()) {
		delete(f.shared, h)
	}
	f.mu.Unlock()
	if !last {
		return nil
	}
	return sandbox.RemoveTree(c.dir)
}

// failed reports whether the checkout failed.
func (c *checkout) failed() bool {
	select {
	case <-c.ready:
		return c.err != nil
	default:
		return false
	}
}
