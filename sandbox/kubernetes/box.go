package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rathcluster/rath/internal/directory"
	"github.com/rathcluster/rath/internal/execd"
	"github.com/rathcluster/rath/internal/mirror"
	"github.com/rathcluster/rath/sandbox"
)

// box is one open sandbox.
type box struct {
	p      *instance
	info   sandbox.Info
	files  *directory.Directory
	here   *mirror.Host
	mirror *mirror.Mirror

	closing context.Context // ends when Close begins
	close   context.CancelFunc
	once    sync.Once
	err     error // of Close
}

var _ sandbox.Sandbox = (*box)(nil)

func (b *Backend) open(ctx context.Context, info sandbox.Info, s sandbox.Spec) (_ *box, err error) {
	o := execd.Opening{}
	if s.Network.Listed() {
		if o.Network, o.Authority = s.Network, s.Authority; s.Proxy == nil {
			return nil, errors.New("there is no proxy to bring the connections of commands to")
		}
	}
	x := &box{info: info}
	if x.files, err = directory.Open(s.Dir, nil); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.release())
		}
	}()
	if x.here, err = mirror.Open(x.files.Name(), nil); err != nil {
		return nil, err
	}
	r := request{image: info.Image, limits: s.Limits, owner: s.Owner, epoch: s.Epoch}
	if x.p, err = b.launch(ctx, r, o); err != nil {
		return nil, err
	}
	x.mirror = mirror.New(x.here, x.p.client.Files(), mirror.Limits{})
	if s.Owner != "" {
		if err := x.p.in.supersede(ctx, ownerLabel(s.Owner), s.Epoch); err != nil {
			b.log.Warn("older pods of a session are left for now", "error", err)
		}
	}
	if s.Network.Listed() {
		x.p.client.Carry(s.Proxy)
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
	e, err := x.mirror.Exec(ctx, func(ctx context.Context) (sandbox.Exit, error) { return x.p.client.Exec(ctx, c) })
	switch {
	case err == nil:
		return e, nil
	case x.closing.Err() != nil && errors.Is(err, sandbox.ErrLost):
		return e, sandbox.ErrClosed
	case errors.Is(err, sandbox.ErrLost):
		return e, fmt.Errorf("kubernetes: pod %s of namespace %s: %s: %w", x.p.name, x.p.in.namespace, x.p.cause(), err)
	}
	return e, fmt.Errorf("kubernetes: %w", err)
}

// release closes what is open of the directory.
func (x *box) release() error {
	if x.here == nil {
		return x.files.Close()
	}
	return errors.Join(x.here.Close(), x.files.Close())
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
		err := x.p.discard()
		x.files.Wait()
		if err := errors.Join(err, x.release()); err != nil {
			x.err = fmt.Errorf("kubernetes: close sandbox: %w", err)
		}
	})
	return x.err
}
