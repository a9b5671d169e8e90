package docker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/rathcluster/rath/internal/sandbox/directory"
	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/internal/sandbox/loopback"
	"github.com/rathcluster/rath/internal/sandbox/proc"
	"github.com/rathcluster/rath/sandbox"
)

// The contents of the folder of each container.
const (
	socketDir    = "socket"
	workspaceDir = "workspace" // of a waiting container
)

// box is one open sandbox. If a container runs out of memory and ends, the next command
// starts another container over the same directory.
type box struct {
	b     *driver
	info  sandbox.Info
	files *directory.Directory
	begin func(context.Context) (*instance, error)

	closing context.Context // ends when Close begins
	close   context.CancelFunc
	once    sync.Once
	err     error // of Close

	mu sync.Mutex // guards the fields below
	c  *instance  // nil after it ran out of memory
}

var _ sandbox.Sandbox = (*box)(nil)

func (b *driver) open(ctx context.Context, info sandbox.Info, s sandbox.Spec) (_ *box, err error) {
	dir, err := filepath.Abs(s.Dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, err
	}
	k := kind{image: info.Image, limits: s.Limits}
	o := execd.Opening{}
	warm := b.o.Warm
	if s.Network.Listed() {
		// The daemon gets its network when it is opened, so a waiting container has none.
		if o.Network, o.Authority, warm = s.Network, s.Authority, 0; s.Proxy == nil {
			return nil, errors.New("there is no proxy to bring the connections of commands to")
		}
	}
	if s.Services {
		o.Services, warm = true, 0
	}
	waits := b.pool.begin(k, warm)
	defer b.pool.end()
	info.Dir = execd.Workspace
	x := &box{b: b, info: info}
	var u user
	if waits != nil {
		err := b.claim(ctx, waits, dir, s)
		if err == nil {
			x.c, u = waits, waits.user
			x.files, err = u.open(dir)
		}
		if err != nil {
			b.log.Warn("a container that waited cannot be used; another one is made", "error", errors.Join(err, b.discard(waits)))
			x.c = nil
		}
	}
	x.begin = func(ctx context.Context) (*instance, error) {
		c, err := b.launch(ctx, containerName(s.Owner, s.Epoch), dir, u, k, proc.NewLease(dir, s.Owner, s.Epoch), o)
		if err == nil && s.Network.Listed() {
			if c.proxy, err = loopback.Listen(filepath.Join(c.folder, socketDir), s.Proxy); err != nil {
				return nil, errors.Join(err, b.discard(c))
			}
		}
		return c, err
	}
	if x.c == nil {
		if u, err = newUser(); err != nil {
			return nil, err
		}
		if x.files, err = u.open(dir); err != nil {
			return nil, err
		}
		if x.c, err = x.begin(ctx); err != nil {
			return nil, errors.Join(err, x.files.Close())
		}
	}
	x.closing, x.close = context.WithCancel(context.Background())
	return x, nil
}

// at returns the container of commands, and starts one if there is none.
func (x *box) at(ctx context.Context) (*instance, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closing.Err() != nil {
		return nil, sandbox.ErrClosed
	}
	if x.c != nil {
		return x.c, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.closing, cancel)()
	c, err := x.begin(ctx)
	if err != nil {
		return nil, err
	}
	x.c = c
	return c, nil
}

// leave discards a container that ran out of memory; nil means the current one.
func (x *box) leave(c *instance) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c == nil {
		c = x.c
	}
	if c == nil || c != x.c {
		return nil // another command has discarded it
	}
	x.c = nil
	return x.b.discard(c)
}

// Exec implements sandbox.Sandbox.
func (x *box) Exec(ctx context.Context, cmd sandbox.Cmd) (sandbox.Exit, error) {
	if err := x.files.Enter(); err != nil {
		return sandbox.Exit{}, err
	}
	defer x.files.Leave()
	c, err := x.at(ctx)
	if err != nil {
		if x.closing.Err() != nil {
			return sandbox.Exit{}, sandbox.ErrClosed
		}
		return sandbox.Exit{}, fmt.Errorf("docker: %w: its memory ran out, and it cannot be opened again: %w", sandbox.ErrLost, err)
	}
	e, err := c.client.Exec(ctx, cmd)
	switch {
	case err == nil:
		return e, nil
	case x.closing.Err() != nil && errors.Is(err, sandbox.ErrLost):
		return e, sandbox.ErrClosed
	case !errors.Is(err, execd.ErrGone) || !x.b.ranOut(x.closing, c):
		return e, fmt.Errorf("docker: %w", err)
	}
	if err := x.leave(c); err != nil {
		return e, fmt.Errorf("docker: %w: %w", sandbox.ErrLost, err)
	}
	return execd.OutOfMemory(", and the sandbox ended with it; the files are as this command left them"), nil
}

// Files implements sandbox.Sandbox.
func (x *box) Files() sandbox.Files { return x.files }

// Info implements sandbox.Sandbox.
func (x *box) Info() sandbox.Info { return x.info }

// Close implements sandbox.Sandbox.
func (x *box) Close() error {
	x.once.Do(func() {
		x.files.Shut()
		x.close()
		err := x.leave(nil)
		x.files.Wait()
		if err := errors.Join(err, x.files.Close()); err != nil {
			x.err = fmt.Errorf("docker: close sandbox: %w", err)
		}
	})
	return x.err
}
