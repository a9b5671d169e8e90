package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/rathcluster/rath/internal/directory"
	"github.com/rathcluster/rath/internal/execd"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
)

// leaseFile is in the folder of each container.
const leaseFile = "lease.json"

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
	c, err := b.launch(ctx, containerName(s.Owner, s.Epoch), lease.Dir, info.Image, s.Limits, lease)
	if err != nil {
		return nil, err
	}
	x := &box{b: b, c: c, info: info}
	defer func() {
		if err == nil {
			return
		}
		err = errors.Join(err, b.discard(c))
		if x.files != nil {
			err = errors.Join(err, x.files.Close())
		}
	}()
	var owner *directory.Owner
	if c.uid != os.Geteuid() {
		owner = &directory.Owner{UID: c.uid, GID: c.gid}
	}
	if x.files, err = directory.Open(lease.Dir, owner); err != nil {
		return nil, err
	}
	if _, err := c.client.Open(ctx, execd.Opening{UID: c.uid, GID: c.gid, Limits: s.Limits}); err != nil {
		return nil, err
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
