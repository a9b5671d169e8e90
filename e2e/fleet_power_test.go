//go:build e2e && linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/fleet"
	"github.com/rathcluster/rath/session"
)

// committers append to their own sessions as fast as possible, as nodes do, and record the
// acknowledged commits.
type committers struct {
	c      *api.Conn
	mu     sync.Mutex
	acks   []acked
	halted []error // of writers that stopped before their time was over
}

func commitTo(ctx context.Context, w *world, level streams.Level) (*committers, error) {
	c, err := w.connect(ctx, w.f.URLs(0), level)
	if err == nil {
		// The servers are up, but their leader may not have heard from all of them.
		for until := time.Now().Add(time.Minute); ; sleep(ctx, 200*time.Millisecond) {
			if err = c.Streams.Provision(ctx); !streams.WillPass(err) || time.Now().After(until) {
				break
			}
		}
	}
	return &committers{c: c}, err
}

// connect connects to servers with the rights of a node.
func (w *world) connect(ctx context.Context, url string, level streams.Level) (*api.Conn, error) {
	user, password := w.f.NodeLogin()
	var monitors []string
	for _, p := range w.f.Servers() {
		monitors = append(monitors, fmt.Sprintf("http://%s:8222", p.IP()))
	}
	return api.Connect(ctx, &streams.Options{
		Options: conn.Options{URL: url, User: user, Password: password, Inbox: conn.NodeInbox}, Level: level, Replicas: len(w.f.Servers()),
		Probe: streams.MonitorProbe(monitors...),
	})
}

// run appends until ctx ends. A writer that has to stop continues with another session.
func (m *committers) run(ctx context.Context, writers int) {
	mint := commitlog.IDGenerator{Generation: m.c.Streams.Generation(), Partitions: m.c.Streams.Partitions()}
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				err := m.write(ctx, session.Key{Tenant: "power", ID: mint.ID(fmt.Sprint("s", i, "-", n))})
				if ctx.Err() == nil { // an acknowledged commit is lost, or no answer came for too long
					m.mu.Lock()
					m.halted = append(m.halted, err)
					m.mu.Unlock()
				}
				sleep(ctx, 100*time.Millisecond)
			}
		})
	}
	wg.Wait()
}

// write appends to a session until that fails.
func (m *committers) write(ctx context.Context, k session.Key) error {
	var at commitlog.Position
	for n := 0; ; n++ {
		events := []session.Event{session.ChunkEvent(session.UserText(fmt.Sprint("row ", n, strings.Repeat(" and more", n%50))))}
		if n == 0 {
			opened, err := journal.NewEvent(journal.KindWriter, journal.WriterOpened{Epoch: 1, Incarnation: "committer"})
			if err != nil {
				panic(err)
			}
			events = append([]session.Event{opened, session.OpenedEvent(session.Opening{Kind: session.OpenLeaf})}, events...)
		}
		next, err := m.c.Logs.Log().Append(ctx, at, commitlog.Commit{Key: k, Root: k.ID, Seq: at.Seq + 1, Epoch: 1, Prev: at.Hash, Events: events})
		if err != nil {
			return err
		}
		at = next
		m.mu.Lock()
		m.acks = append(m.acks, acked{k.ID, at.Seq, at.Hash})
		m.mu.Unlock()
	}
}

// more waits until n more commits are acknowledged.
func (m *committers) more(ctx context.Context, n int) error {
	have := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.acks)
	}
	for before := have(); have() < before+n; sleep(ctx, 10*time.Millisecond) {
		if ctx.Err() != nil {
			return fmt.Errorf("%d more commits were acknowledged, want %d: %w", have()-before, n, ctx.Err())
		}
	}
	return nil
}

// lost counts the acknowledged commits that the log does not hold any more.
func (m *committers) lost(ctx context.Context) (lost int, err error) {
	kept := map[session.ID]map[uint64]session.Hash{}
	for _, a := range m.acks {
		if kept[a.id] == nil {
			kept[a.id] = map[uint64]session.Hash{}
			for e, err := range m.c.Logs.Log().Read(ctx, session.Key{Tenant: "power", ID: a.id}, commitlog.Position{}) {
				if err != nil && !errors.Is(err, session.ErrNotFound) {
					return 0, err
				}
				if err == nil {
					kept[a.id][e.At.Seq] = e.At.Hash
				}
			}
		}
		if kept[a.id][a.seq] != a.hash {
			lost++
		}
	}
	return lost, nil
}

// cutAll cuts the power of all NATS servers, restores it, and reports whether they come up.
func (w *world) cutAll(ctx context.Context) error {
	w.t.Helper()
	if err := w.f.CutPower(w.f.Servers()...); err != nil {
		w.fatal(err)
	}
	if err := w.f.RestorePower(w.f.Servers()...); err != nil {
		w.fatal(err)
	}
	for _, p := range w.f.Servers() {
		if err := p.Start(); err != nil {
			w.fatal(err)
		}
	}
	return w.f.ServersUp(ctx)
}

// powered are disks whose power can be cut.
func powered() []fleet.Disk {
	d := fleet.Disk{Size: 1 << 30, Power: true}
	return []fleet.Disk{d, d, d}
}

// TestFleetPowerCut cuts the power of all three NATS servers at once, twice,
// under load: no acknowledged commit is lost, and every run ends.
func TestFleetPowerCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, drawSeed(), shape{servers: 3, nodes: 2, slots: 8, disks: powered()})
	m, err := commitTo(t.Context(), w, streams.Fsync)
	if err != nil {
		w.fatal(err)
	}
	defer m.c.Conn.Close()
	w.work(30*time.Second, 6, func(context.Context) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		committing, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { m.run(committing, 8) })
		for range 2 {
			sleep(ctx, time.Duration(2000+w.random.IntN(3000))*time.Millisecond)
			if err := errors.Join(m.more(ctx, 250), w.cutAll(ctx)); err != nil {
				w.fatal(err)
			}
		}
		err := m.more(ctx, 250) // in the logs that were cut, too
		stop()
		wg.Wait()
		if err != nil {
			w.fatal(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	lost, err := m.lost(ctx)
	if err != nil {
		w.fatal(err)
	}
	t.Logf("level fsync: %d of %d acknowledged commits lost; writers that stopped: %v", lost, len(m.acks), m.halted)
	if lost > 0 {
		w.fail("level fsync lost %d of %d acknowledged commits", lost, len(m.acks))
	}
	w.check()
}

// TestFleetPowerCutLazy: the same cut at level lazy loses commits, which shows
// that the test can see it.
func TestFleetPowerCutLazy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, drawSeed(), shape{servers: 3, disks: powered(), lazy: true})
	m, err := commitTo(t.Context(), w, streams.Lazy)
	if err != nil {
		w.fatal(err)
	}
	defer m.c.Conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	committing, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { m.run(committing, 8) })
	if err := m.more(ctx, 1000); err != nil {
		w.fatal(err)
	}
	if err := w.cutAll(ctx); err != nil {
		t.Logf("the servers do not come up any more: %v", err)
	}
	stop()
	wg.Wait()
	if err := m.c.Streams.Provision(ctx); err != nil {
		t.Logf("the streams are not there any more: %v", err)
	}
	lost, err := m.lost(ctx)
	if err != nil {
		t.Logf("the logs cannot be read any more: %v", err)
		lost = len(m.acks)
	}
	t.Logf("level lazy: %d of %d acknowledged commits lost", lost, len(m.acks))
	if lost == 0 {
		t.Errorf("level lazy lost none of %d commits: this test cannot see a loss", len(m.acks))
	}
}
