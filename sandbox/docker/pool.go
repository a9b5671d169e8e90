package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/internal/sandbox/proc"
	"github.com/rathcluster/rath/sandbox"
)

// pool are containers that wait for a sandbox. Each is over a directory of its own, empty
// until a sandbox takes it: then the workspace's files are moved there, and the directory
// takes the workspace's name, which the mount does not notice. None is used twice.
//
// A kind of container waits once a sandbox of that kind was opened, and is given up when
// none was for a while. New ones are made one by one while nothing is opened, because to
// make one takes as long as ten claims.
type pool struct {
	want chan struct{} // something may be missing

	mu      sync.Mutex
	running bool // Run looks after it
	opening int
	opened  time.Time // when one was opened last
	kinds   []*waiting
}

// kind is what containers must have in common to stand for each other.
type kind struct {
	image  string
	limits sandbox.Limits
}

// waiting are the containers of one kind.
type waiting struct {
	kind
	used time.Time
	list []*instance
}

const (
	mostKinds = 4
	kindRest  = 10 * time.Minute       // a kind that was not opened for so long waits no more
	quiet     = 250 * time.Millisecond // without a sandbox being opened, before one is made
)

// begin notes that a sandbox is being opened, and takes a container for it, if one waits.
func (p *pool) begin(k kind, most int) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opening++
	if !p.running || most == 0 {
		return nil
	}
	i := slices.IndexFunc(p.kinds, func(w *waiting) bool { return w.kind == k })
	if i < 0 {
		if len(p.kinds) == mostKinds { // the one that rests longest makes room
			i = 0
			for j, w := range p.kinds {
				if w.used.Before(p.kinds[i].used) {
					i = j
				}
			}
			p.kinds[i].used = time.Time{}
			return nil
		}
		p.kinds = append(p.kinds, &waiting{kind: k, used: time.Now()})
		return nil
	}
	w := p.kinds[i]
	w.used = time.Now()
	if len(w.list) == 0 {
		return nil
	}
	c := w.list[0]
	w.list = w.list[1:]
	return c
}

// end notes that the sandbox is open.
func (p *pool) end() {
	p.mu.Lock()
	p.opening--
	p.opened = time.Now()
	p.mu.Unlock()
	select {
	case p.want <- struct{}{}:
	default:
	}
}

// next returns the kind that is missing a container, and for how long to wait before one
// is made; ok is false if none is missing.
func (p *pool) next(most int) (k kind, wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.kinds {
		if len(w.list) < most && time.Since(w.used) < kindRest {
			if p.opening > 0 {
				return w.kind, quiet, true
			}
			return w.kind, quiet - time.Since(p.opened), true
		}
	}
	return k, 0, false
}

// add keeps a container; false if its kind waits no more.
func (p *pool) add(k kind, c *instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.kinds, func(w *waiting) bool { return w.kind == k })
	if !p.running || i < 0 {
		return false
	}
	p.kinds[i].list = append(p.kinds[i].list, c)
	return true
}

// expire forgets the kinds that rest, or all, and returns their containers.
func (p *pool) expire(all bool) []*instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	var old []*instance
	p.kinds = slices.DeleteFunc(p.kinds, func(w *waiting) bool {
		if !all && time.Since(w.used) < kindRest {
			return false
		}
		old = append(old, w.list...)
		return true
	})
	if all {
		p.running = false
	}
	return old
}

// refill makes one container that is missing. It returns when to look again; 0 is when
// something changes.
func (b *driver) refill(ctx context.Context) time.Duration {
	k, wait, ok := b.pool.next(b.o.Warm)
	switch {
	case !ok:
		return 0
	case wait > 0:
		return wait
	}
	c, err := b.prepare(ctx, k)
	if err == nil && !b.pool.add(k, c) {
		err = b.discard(c)
	}
	if err != nil && ctx.Err() == nil {
		b.log.Warn("a container that would wait for a sandbox was not made", "error", err)
		return sweepEvery
	}
	return time.Millisecond // the next one
}

// prepare starts a container over an empty directory.
func (b *driver) prepare(ctx context.Context, k kind) (*instance, error) {
	u, err := newUser()
	if err != nil {
		return nil, err
	}
	return b.launch(ctx, containerName("", 0), "", u, k, proc.NewLease("", "", 0), execd.Opening{})
}

// giveUp ends containers that waited.
func (b *driver) giveUp(list []*instance) error {
	var errs []error
	for _, c := range list {
		errs = append(errs, b.discard(c))
	}
	return errors.Join(errs...)
}

// claim makes a waiting container that of a workspace. After an error the workspace's files
// are under its name, as before.
func (b *driver) claim(ctx context.Context, c *instance, dir string, s sandbox.Spec) error {
	named := make(chan error, 1)
	go func() { named <- b.engine.rename(ctx, c.id, containerName(s.Owner, s.Epoch)) }() // by which a sweep knows whose it is
	err := adopt(dir, filepath.Join(c.folder, workspaceDir))
	if err := <-named; err != nil {
		return fmt.Errorf("name the container: %w", err)
	}
	return err
}

// adopt moves what is in a directory into another, empty one, and gives that its name.
// After an error the directory is as it was.
func adopt(dir, into string) (err error) {
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var moved []string
	defer func() {
		if err == nil {
			return
		}
		for _, name := range moved {
			err = errors.Join(err, os.Rename(filepath.Join(into, name), filepath.Join(dir, name)))
		}
	}()
	for _, e := range entries {
		if err := os.Rename(filepath.Join(dir, e.Name()), filepath.Join(into, e.Name())); err != nil {
			return err
		}
		moved = append(moved, e.Name())
	}
	if err := os.Chmod(into, fi.Mode().Perm()); err != nil {
		return err
	}
	if err := exchange(into, dir); err != nil {
		return err
	}
	return os.Remove(into) // the workspace's own, now empty
}
