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

// pool is a set of containers that wait for a sandbox. Each is over a directory of its own,
// empty until a sandbox claims it. Then the workspace's files are moved into the directory,
// and the directory is renamed to the workspace's name, which does not affect the mount. No
// container is used twice.
//
// Containers of a kind wait once a sandbox of that kind was opened, and are discarded when
// none was opened for a while. New ones are created one by one while no sandbox is being
// opened, because creating one takes as long as ten claims.
type pool struct {
	want chan struct{} // signals that a container may be missing

	mu      sync.Mutex
	running bool // Run maintains the pool
	opening int
	opened  time.Time // when a sandbox was opened last
	kinds   []*waiting
}

// kind is the set of properties that make containers interchangeable.
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
	kindRest  = 10 * time.Minute       // after this time without an open, a kind has no waiting containers
	quiet     = 250 * time.Millisecond // the pause after an open before a container is created
)

// begin records that a sandbox is being opened, and returns a waiting container for it, if
// there is one.
func (p *pool) begin(k kind, most int) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opening++
	if !p.running || most == 0 {
		return nil
	}
	i := slices.IndexFunc(p.kinds, func(w *waiting) bool { return w.kind == k })
	if i < 0 {
		if len(p.kinds) == mostKinds { // replace the kind that was unused the longest
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

// end records that the sandbox is open.
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

// next returns a kind with too few waiting containers, and the wait before one is created;
// ok is false if no container is missing.
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

// add stores a waiting container. It returns false if the kind has expired.
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

// expire removes the kinds that are unused, or all, and returns their containers.
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

// refill creates one missing container. It returns the time until the next attempt; 0 waits
// for a change.
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
	return time.Millisecond // for the next one
}

// prepare starts a container over an empty directory.
func (b *driver) prepare(ctx context.Context, k kind) (*instance, error) {
	u, err := newUser()
	if err != nil {
		return nil, err
	}
	return b.launch(ctx, containerName("", 0), "", u, k, proc.NewLease("", "", 0), execd.Opening{})
}

// giveUp discards waiting containers.
func (b *driver) giveUp(list []*instance) error {
	var errs []error
	for _, c := range list {
		errs = append(errs, b.discard(c))
	}
	return errors.Join(errs...)
}

// claim assigns a waiting container to a workspace. After an error the workspace's files
// are under its name, as before.
func (b *driver) claim(ctx context.Context, c *instance, dir string, s sandbox.Spec) error {
	named := make(chan error, 1)
	go func() { named <- b.engine.rename(ctx, c.id, containerName(s.Owner, s.Epoch)) }() // a sweep finds the owner by the name
	err := adopt(dir, filepath.Join(c.folder, workspaceDir))
	if err := <-named; err != nil {
		return fmt.Errorf("name the container: %w", err)
	}
	return err
}

// adopt moves the contents of a directory into another, empty one, and renames that one to
// the directory's name. After an error the directory is unchanged.
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
