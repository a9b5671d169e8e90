package docker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/rathcluster/rath/internal/directory"
	"github.com/rathcluster/rath/internal/execd"
	"github.com/rathcluster/rath/internal/loopback"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
)

// What is in the folder of each container.
const (
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
	proxy   *loopback.Socket // nil without a list of hosts
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
	o := execd.Opening{}
	warm := b.o.Warm
	if s.Network.Listed() {
		// Its daemon is told of the network when it is opened, before it waits.
		if o.Network, o.Authority, warm = s.Network, s.Authority, 0; s.Proxy == nil {
			return nil, errors.New("there is no proxy to bring the connections of commands to")
		}
	}
	if s.Services {
		o.Services, warm = true, 0
	}
	waits := b.pool.begin(k, warm)
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
		if x.c, err = b.launch(ctx, containerName(s.Owner, s.Epoch), lease.Dir, u, k, lease, o); err != nil {
			return nil, errors.Join(err, x.files.Close())
		}
	}
	if s.Network.Listed() {
		if x.proxy, err = loopback.Listen(filepath.Join(x.c.folder, socketDir), s.Proxy); err != nil {
			return nil, errors.Join(err, b.discard(x.c), x.files.Close())
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
		var err error
		if x.proxy != nil {
			err = x.proxy.Close()
		}
		err = errors.Join(err, x.b.discard(x.c))
		x.files.Wait()
		if err := errors.Join(err, x.files.Close()); err != nil {
			x.err = fmt.Errorf("docker: close sandbox: %w", err)
		}
	})
	return x.err
}
