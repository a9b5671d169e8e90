package docker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rathcluster/rath/internal/directory"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
)

// What is in the folder of each container.
const (
	leaseFile    = "lease.json"
	socketDir    = "socket"
	workspaceDir = "workspace" // of one that waits
)

// box is one open sandbox.
type box struct {
	b     *Backend
	c     *instance
	info  sandbox.Info
	files *directory.Directory

	closing context.Context // ends when Close begins
	close   context.CancelFunc
	once    sync.Once
	err     error // of Close
}

var _ sandbox.Sandbox = (*box)(nil)

func (b *Backend) open(ctx context.Context, info sandbox.Info, s sandbox.Spec) (_ *box, err error) {
	lease, err := local.NewLease(s.Dir, s.Owner, s.Epoch)
	if err != nil {
		return nil, err
	}
	k := kind{image: info.Image, limits: s.Limits}
	waits := b.pool.begin(k, b.o.Warm)
	defer b.pool.end()
	x := &box{b: b, info: info}
	if waits != nil {
		err := b.claim(ctx, waits, lease.Dir, s)
		if err == nil {
			x.c = waits
			x.files, err = x.c.user.open(lease.Dir)
		}
		if err != nil {
			b.log.Warn("a container that waited cannot be used; another one is made", "error", errors.Join(err, b.discard(waits)))
			x.c = nil
		}
	}
	if x.c == nil {
		u, err := newUser()
		if err != nil {
			return nil, err
		}
		if x.files, err = u.open(lease.Dir); err != nil {
			return nil, err
		}
		if x.c, err = b.launch(ctx, containerName(s.Owner, s.Epoch), lease.Dir, u, k, lease); err != nil {
			return nil, errors.Join(err, x.files.Close())
		}
	}
	x.closing, x.close = context.WithCancel(context.Background())
	return x, nil
}

// Exec implements sandbox.Sandbox.
func (x *box) Exec(ctx context.Context, c sandbox.Cmd) (sandbox.Exit, error) {
	if err := x.files.Enter(); err != nil {
		return sandbox.Exit{}, err
	}
	defer x.files.Leave()
	e, err := x.c.client.Exec(ctx, c)
	switch {
	case err == nil:
		return e, nil
	case x.closing.Err() != nil && errors.Is(err, sandbox.ErrLost):
		return e, sandbox.ErrClosed
	}
	return e, fmt.Errorf("docker: %w", err)
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
		err := x.b.discard(x.c)
		x.files.Wait()
		if err := errors.Join(err, x.files.Close()); err != nil {
			x.err = fmt.Errorf("docker: close sandbox: %w", err)
		}
	})
	return x.err
}
