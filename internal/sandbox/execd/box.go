package execd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rathcluster/rath/internal/sandbox/directory"
	"github.com/rathcluster/rath/internal/sandbox/mirror"
	"github.com/rathcluster/rath/sandbox"
)

// Place is a running daemon of a [Box] with its environment: a pod, or a sandbox of a
// service.
type Place interface {
	// Client returns the holder of its daemon.
	Client() *Client
	// Dir returns the path of the workspace for its commands.
	Dir() string
	// Cause returns the reason why its daemon ended, and whether it ran out of memory.
	Cause() (why string, outOfMemory bool)
	// Discard ends the daemon and its place.
	Discard() error
}

// Box is a sandbox whose commands run in a place without the host's directory, which a
// mirror synchronizes. The directory is authoritative: if a place runs out of memory and
// ends, the next command starts another place with the same files.
type Box struct {
	name  string // of the backend, for errors
	info  sandbox.Info
	spec  sandbox.Spec
	begin func(context.Context, Opening) (Place, error)
	files *directory.Directory
	here  *mirror.Host

	closing context.Context // ends when Close begins
	close   context.CancelFunc
	once    sync.Once
	err     error // of Close

	mu     sync.Mutex // guards the fields below, and the directory in info
	place  Place      // nil after it ran out of memory
	mirror *mirror.Mirror
}

var _ sandbox.Sandbox = (*Box)(nil)

// OpenBox opens a sandbox over a directory of this host. begin starts a place for an
// Opening, and may be called again.
func OpenBox(ctx context.Context, name string, s sandbox.Spec, info sandbox.Info, begin func(context.Context, Opening) (Place, error)) (_ *Box, err error) {
	if s.Network.Listed() && s.Proxy == nil {
		return nil, errors.New("there is no proxy to bring the connections of commands to")
	}
	b := &Box{name: name, info: info, spec: s, begin: begin}
	if b.files, err = directory.Open(s.Dir, nil); err != nil {
		return nil, err
	}
	if b.here, err = mirror.Open(b.files.Name(), nil); err != nil {
		return nil, errors.Join(err, b.files.Close())
	}
	b.closing, b.close = context.WithCancel(context.Background())
	if _, _, err := b.at(ctx); err != nil {
		return nil, errors.Join(err, b.here.Close(), b.files.Close())
	}
	return b, nil
}

// at returns the place of commands, and starts one if there is none.
func (b *Box) at(ctx context.Context) (Place, *mirror.Mirror, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing.Err() != nil {
		return nil, nil, sandbox.ErrClosed
	}
	if b.place != nil {
		return b.place, b.mirror, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.closing, cancel)()
	o := Opening{Services: b.spec.Services}
	if b.spec.Network.Listed() {
		o.Network, o.Authority = b.spec.Network, b.spec.Authority
	}
	p, err := b.begin(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	if b.spec.Network.Listed() {
		p.Client().Carry(b.spec.Proxy)
	}
	b.info.Dir = p.Dir()
	b.place, b.mirror = p, mirror.New(b.here, p.Client().Files(), mirror.Limits{})
	b.mirror.Beside = b.spec.Services
	return p, b.mirror, nil
}

// Exec implements sandbox.Sandbox.
func (b *Box) Exec(ctx context.Context, c sandbox.Cmd) (sandbox.Exit, error) {
	if err := b.files.Enter(); err != nil {
		return sandbox.Exit{}, err
	}
	defer b.files.Leave()
	p, m, err := b.at(ctx)
	if err != nil {
		if b.closing.Err() != nil {
			return sandbox.Exit{}, sandbox.ErrClosed
		}
		return sandbox.Exit{}, fmt.Errorf("%s: %w: its memory ran out, and it cannot be opened again: %w", b.name, sandbox.ErrLost, err)
	}
	run := func(ctx context.Context) (sandbox.Exit, error) { return p.Client().Exec(ctx, c) }
	var e sandbox.Exit
	if c.Port != 0 { // it has no files
		e, err = run(ctx)
	} else {
		e, err = m.Exec(ctx, run)
	}
	switch {
	case err == nil:
		return e, nil
	case !errors.Is(err, sandbox.ErrLost):
		return e, fmt.Errorf("%s: %w", b.name, err)
	case b.closing.Err() != nil:
		return e, sandbox.ErrClosed
	}
	why, outOfMemory := p.Cause()
	if !outOfMemory {
		return e, fmt.Errorf("%s: %s: %w", b.name, why, err)
	}
	if err := b.leave(p); err != nil {
		return e, fmt.Errorf("%s: %w: %w", b.name, sandbox.ErrLost, err)
	}
	return OutOfMemory(", and the sandbox ended with it; the files are as they were before this command"), nil
}

// Sync copies the services' changes into the directory, and the caller's changes to the
// services.
func (b *Box) Sync(ctx context.Context) error {
	if err := b.files.Enter(); err != nil {
		return err
	}
	defer b.files.Leave()
	b.mu.Lock()
	m := b.mirror
	b.mu.Unlock()
	if m == nil {
		return nil
	}
	if err := m.Sync(ctx); err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	return nil
}

// leave discards a place that ran out of memory.
func (b *Box) leave(p Place) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.place != p {
		return nil // another command has discarded it
	}
	b.place, b.mirror = nil, nil
	return p.Discard()
}

// Files implements sandbox.Sandbox.
func (b *Box) Files() sandbox.Files { return b.files }

// Info implements sandbox.Sandbox.
func (b *Box) Info() sandbox.Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.info
}

// Place returns the place of commands; nil after it ran out of memory.
func (b *Box) Place() Place {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.place
}

// Close implements sandbox.Sandbox.
func (b *Box) Close() error {
	b.once.Do(func() {
		b.files.Shut()
		b.close()
		var err error
		if p := b.Place(); p != nil {
			err = p.Discard()
		}
		b.files.Wait()
		if err := errors.Join(err, b.here.Close(), b.files.Close()); err != nil {
			b.err = fmt.Errorf("%s: close sandbox: %w", b.name, err)
		}
	})
	return b.err
}
