package opensandbox

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
	x      *instance
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
	r := request{image: info.Image, limits: s.Limits, owner: s.Owner, epoch: s.Epoch}
	if s.Network.Listed() {
		if r.open = (execd.Opening{Network: s.Network, Authority: s.Authority}); s.Proxy == nil {
			return nil, errors.New("there is no proxy to bring the connections of commands to")
		}
	}
	k := &box{info: info}
	if k.files, err = directory.Open(s.Dir, nil); err != nil {
		return nil, err
	}
	if k.here, err = mirror.Open(k.files.Name(), nil); err != nil {
		return nil, errors.Join(err, k.files.Close())
	}
	err = b.supersede(ctx, s.Owner, s.Epoch)
	if err == nil {
		k.x, err = b.launch(ctx, r)
	}
	if err != nil {
		return nil, errors.Join(err, k.here.Close(), k.files.Close())
	}
	if s.Network.Listed() {
		k.x.client.Carry(s.Proxy)
	}
	k.mirror = mirror.New(k.here, k.x.client.Files(), mirror.Limits{})
	k.closing, k.close = context.WithCancel(context.Background())
	return k, nil
}

// Exec implements sandbox.Sandbox.
func (k *box) Exec(ctx context.Context, c sandbox.Cmd) (sandbox.Exit, error) {
	if err := k.files.Enter(); err != nil {
		return sandbox.Exit{}, err
	}
	defer k.files.Leave()
	e, err := k.mirror.Exec(ctx, func(ctx context.Context) (sandbox.Exit, error) { return k.x.client.Exec(ctx, c) })
	switch {
	case err == nil:
		return e, nil
	case k.closing.Err() != nil && errors.Is(err, sandbox.ErrLost):
		return e, sandbox.ErrClosed
	}
	return e, fmt.Errorf("opensandbox: sandbox %s: %w", k.x.id, err)
}

// Files implements sandbox.Sandbox.
func (k *box) Files() sandbox.Files { return k.files }

// Info implements sandbox.Sandbox.
func (k *box) Info() sandbox.Info { return k.info }

// Close implements sandbox.Sandbox.
func (k *box) Close() error {
	k.once.Do(func() {
		k.files.Shut()
		k.close()
		err := k.x.discard()
		k.files.Wait()
		if err := errors.Join(err, k.here.Close(), k.files.Close()); err != nil {
			k.err = fmt.Errorf("opensandbox: close sandbox: %w", err)
		}
	})
	return k.err
}
