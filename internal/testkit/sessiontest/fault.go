package sessiontest

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/session"
)

// Fault is the effect of a [FaultLog] on one append. The zero Fault has no effect.
type Fault struct {
	// Stall delays the append; it ends early with ctx, and the append with it.
	Stall time.Duration
	// Conflict returns session.ErrConflict and stores nothing, without reading the log.
	Conflict bool
	// Unavailable returns session.ErrUnavailable and stores nothing.
	Unavailable bool
	// Lost stores the commit and answers session.ErrUnavailable.
	Lost bool
	// Late answers session.ErrUnavailable at once and stores the commit after
	// that time, if the log still stands where it stood.
	Late time.Duration
	// CrashBefore and CrashAfter stop the log before or after the commit is
	// stored: this call and all later ones fail with session.ErrUnavailable
	// until Restart.
	CrashBefore, CrashAfter bool
}

// FaultLog is a log that injects faults. It is safe for concurrent use. It always
// implements commitlog.Snapshotter; over a log that does not, it stores no snapshots.
type FaultLog struct {
	inner commitlog.Log
	fault func(n int, c commitlog.Commit) Fault

	mu      sync.Mutex
	appends int
	down    bool
	late    sync.WaitGroup
}

var (
	_ commitlog.Log         = (*FaultLog)(nil)
	_ commitlog.Snapshotter = (*FaultLog)(nil)
)

// NewFaultLog returns a log over inner. It calls fault at each append; n counts them from
// one, over all sessions. A nil fault injects nothing.
func NewFaultLog(inner commitlog.Log, fault func(n int, c commitlog.Commit) Fault) *FaultLog {
	if fault == nil {
		fault = func(int, commitlog.Commit) Fault { return Fault{} }
	}
	return &FaultLog{inner: inner, fault: fault}
}

// Appends returns the number of appends requested.
func (f *FaultLog) Appends() int { f.mu.Lock(); defer f.mu.Unlock(); return f.appends }

// Crash stops the log as CrashBefore does.
func (f *FaultLog) Crash() { f.mu.Lock(); defer f.mu.Unlock(); f.down = true }

// Restart ends a crash.
func (f *FaultLog) Restart() { f.mu.Lock(); defer f.mu.Unlock(); f.down = false }

// Crashed reports whether the log is stopped.
func (f *FaultLog) Crashed() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.down }

// Wait returns when all late commits were stored.
func (f *FaultLog) Wait() { f.late.Wait() }

func (f *FaultLog) alive() error {
	if f.Crashed() {
		return fmt.Errorf("sessiontest: the log crashed: %w", session.ErrUnavailable)
	}
	return nil
}

// Append implements commitlog.Log.
func (f *FaultLog) Append(ctx context.Context, at commitlog.Position, c commitlog.Commit) (commitlog.Position, error) {
	f.mu.Lock()
	f.appends++
	n := f.appends
	f.mu.Unlock()
	fault := f.fault(n, c)
	if fault.Stall > 0 {
		select {
		case <-ctx.Done():
			return commitlog.Position{}, ctx.Err()
		case <-time.After(fault.Stall):
		}
	}
	if err := f.alive(); err != nil {
		return commitlog.Position{}, err
	}
	lost := fmt.Errorf("sessiontest: append %d, commit %d of %s: %w", n, c.Seq, c.Key, session.ErrUnavailable)
	switch {
	case fault.CrashBefore:
		f.Crash()
		return commitlog.Position{}, f.alive()
	case fault.Conflict:
		return commitlog.Position{}, fmt.Errorf("sessiontest: append %d, commit %d of %s: %w", n, c.Seq, c.Key, session.ErrConflict)
	case fault.Unavailable:
		return commitlog.Position{}, lost
	case fault.Late > 0:
		f.late.Go(func() {
			time.Sleep(fault.Late)
			// A conflict means that the log went on without it, as it may.
			_, _ = f.inner.Append(context.WithoutCancel(ctx), at, c)
		})
		return commitlog.Position{}, lost
	}
	pos, err := f.inner.Append(ctx, at, c)
	switch {
	case fault.CrashAfter:
		f.Crash()
		return commitlog.Position{}, f.alive()
	case fault.Lost && err == nil:
		return commitlog.Position{}, lost
	}
	return pos, err
}

// Read implements commitlog.Log.
func (f *FaultLog) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	return func(yield func(commitlog.Entry, error) bool) {
		if err := f.alive(); err != nil {
			yield(commitlog.Entry{}, err)
			return
		}
		f.inner.Read(ctx, k, after)(yield)
	}
}

// Last implements commitlog.Log.
func (f *FaultLog) Last(ctx context.Context, k session.Key) (commitlog.Entry, error) {
	if err := f.alive(); err != nil {
		return commitlog.Entry{}, err
	}
	return f.inner.Last(ctx, k)
}

// Save implements commitlog.Snapshotter.
func (f *FaultLog) Save(ctx context.Context, k session.Key, at commitlog.Position, state []byte) error {
	s, ok := f.inner.(commitlog.Snapshotter)
	if err := f.alive(); err != nil || !ok {
		return err
	}
	return s.Save(ctx, k, at, state)
}

// Load implements commitlog.Snapshotter.
func (f *FaultLog) Load(ctx context.Context, k session.Key) (commitlog.Position, []byte, error) {
	s, ok := f.inner.(commitlog.Snapshotter)
	if err := f.alive(); err != nil || !ok {
		return commitlog.Position{}, nil, orNotFound(err)
	}
	return s.Load(ctx, k)
}

// SavePage implements commitlog.Snapshotter.
func (f *FaultLog) SavePage(ctx context.Context, t session.Tenant, digest string, page []byte) error {
	s, ok := f.inner.(commitlog.Snapshotter)
	if err := f.alive(); err != nil || !ok {
		return err
	}
	return s.SavePage(ctx, t, digest, page)
}

// LoadPage implements commitlog.Snapshotter.
func (f *FaultLog) LoadPage(ctx context.Context, t session.Tenant, digest string) ([]byte, error) {
	s, ok := f.inner.(commitlog.Snapshotter)
	if err := f.alive(); err != nil || !ok {
		return nil, orNotFound(err)
	}
	return s.LoadPage(ctx, t, digest)
}

func orNotFound(err error) error {
	if err == nil {
		err = fmt.Errorf("sessiontest: nothing is kept: %w", session.ErrNotFound)
	}
	return err
}
