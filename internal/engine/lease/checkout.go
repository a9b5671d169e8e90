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

// Forks give the forks of one head directories that share one checkout of it, which lives
// as long as one of them. A nil *Forks gives none. It is safe for concurrent use.
type Forks struct {
	dir string

	mu     sync.Mutex // guards what follows
	n      int        // of names
	shared map[sharedHead]*checkout
}

// sharedHead is a head in a tenant's store: what another tenant has it does not share.
type sharedHead struct {
	tenant session.Tenant
	head   blob.Digest
}

// checkout is a head that is checked out once.
type checkout struct {
	dir   string
	ready chan struct{} // closed when what follows is set
	err   error
	take  func(fork string) workspace.Take
	users int // guarded by Forks.mu
}

// NewForks returns forks that keep their files below dir, which has to be on the file
// system of the forks' directories and empty. The error says why there are none here.
func NewForks(dir string) (*Forks, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("flow: forks of workspaces: %w", err)
	}
	if err := overlay.Try(dir); err != nil {
		return nil, err
	}
	return &Forks{dir: dir, shared: map[sharedHead]*checkout{}}, nil
}

// ClearForks unmounts what a former process left below a directory, so that it can be
// removed.
func ClearForks(dir string) error { return overlay.Clear(dir) }

// name returns a path that is not taken.
func (f *Forks) name() string {
	f.n++
	return filepath.Join(f.dir, fmt.Sprint(f.n))
}

// open makes dir a directory that holds a head, and returns a Take of it, and what removes
// it.
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
			return err // what is below stays, for the next start
		}
		return clean()
	}, nil
}

// unmount ends the mount of a directory whose lease is lost. One that is not mounted is no
// error.
func (f *Forks) unmount(dir string) error {
	if f == nil {
		return nil
	}
	return overlay.Unmount(dir)
}

// hold returns the checkout of a head, which one caller makes.
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

// release gives a checkout back. The last one that does so removes it.
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

// failed reports whether the checkout was tried in vain.
func (c *checkout) failed() bool {
	select {
	case <-c.ready:
		return c.err != nil
	default:
		return false
	}
}
