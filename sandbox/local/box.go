package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/rathcluster/rath/internal/sandbox/confinement"
	"github.com/rathcluster/rath/internal/sandbox/directory"
	"github.com/rathcluster/rath/sandbox"
)

// box is one open sandbox.
type box struct {
	o      Options
	info   sandbox.Info
	most   sandbox.Limits
	groups *groups
	files  *directory.Directory
	dir    string   // its path: absolute, no links
	own    string   // this sandbox's folder below Options.State
	tmp    string   // TMPDIR of its commands
	runs   *os.File // one line per supervisor, see lease.go
	proxy  *proxy   // nil without a list of hosts
	// network is nil where commands have no network, or this process's network.
	network *namespace
	ready   standby

	closing context.Context // ends when Close begins
	close   context.CancelFunc

	lost atomic.Bool                     // a call ended with ErrLost
	held atomic.Pointer[confinement.Use] // the usage left by the last command where it is above the limit of disk
	once sync.Once
	err  error // of Close
}

var _ sandbox.Sandbox = (*box)(nil)

func openBox(ctx context.Context, o Options, hs []hierarchy, info sandbox.Info, s sandbox.Spec) (_ *box, err error) {
	files, err := directory.Open(s.Dir, nil)
	if err != nil {
		return nil, fmt.Errorf("local: open %q: %w", s.Dir, err)
	}
	info.Dir = files.Name()
	b := &box{o: o, info: info, most: s.Limits, files: files, dir: files.Name()}
	b.held.Store(new(confinement.Use))
	defer func() {
		if err != nil {
			err = errors.Join(err, b.release())
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := b.record(s); err != nil {
		return nil, fmt.Errorf("local: open %q: %w", s.Dir, err)
	}
	if b.groups, err = openGroups(b.own, hs, s.Limits); err != nil {
		return nil, fmt.Errorf("local: open %q: limit the commands: %w", s.Dir, err)
	}
	if s.Network.Listed() {
		if b.proxy, err = openProxy(b.own, s, o.Loopback); err != nil {
			return nil, fmt.Errorf("local: open %q: proxy: %w", s.Dir, err)
		}
	}
	if own := b.proxy.folder(); own != "" || s.Services && !o.Loopback {
		if b.network, err = openNamespace(own); err != nil {
			return nil, fmt.Errorf("local: open %q: %w", s.Dir, err)
		}
	}
	b.closing, b.close = context.WithCancel(context.Background())
	return b, nil
}

// release frees the resources of open, also after a partial open.
func (b *box) release() error {
	var errs []error
	b.ready.close()
	b.network.close()
	if b.runs != nil {
		errs = append(errs, b.runs.Close())
	}
	if b.proxy != nil {
		errs = append(errs, b.proxy.close())
	}
	if b.own != "" {
		// Normally no process is left. If a process cannot be killed, the record stays, for
		// Reap to try again.
		ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
		defer cancel()
		err := killLost(ctx, b)
		if err == nil && b.groups != nil {
			err = b.groups.close(ctx)
		}
		if err == nil {
			err = sandbox.RemoveTree(b.own)
		}
		errs = append(errs, err)
	}
	errs = append(errs, b.files.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("local: close sandbox: %w", err)
	}
	return nil
}

// killLost kills the processes that a lost supervisor left.
func killLost(ctx context.Context, b *box) error {
	if !b.lost.Load() {
		return nil
	}
	return killLeft(ctx, b.own)
}

// Info implements sandbox.Sandbox.
func (b *box) Info() sandbox.Info { return b.info }

// Files implements sandbox.Sandbox.
func (b *box) Files() sandbox.Files { return b.files }

// Close implements sandbox.Sandbox. Running calls end with ErrClosed.
func (b *box) Close() error {
	b.once.Do(func() {
		b.files.Shut()
		b.close()
		b.files.Wait()
		b.err = b.release()
	})
	return b.err
}
