package api_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// node is a Rath node for tests: everything of this package around a System that runs the
// workflows "agent", which answers its input with the scripted model, and "hold", which
// continues at the test's signal.
type node struct {
	t    testing.TB
	conn *api.Conn
	sys  *actors.System
	rt   *engine.Runtime

	hold chan struct{} // closed: runs of "hold" end

	srv      *natsserver.Server
	js       jetstream.JetStream // an operator's
	services []*conn.Service
	cancel   context.CancelFunc
	intake   context.CancelFunc // ends the delivery of tasks and work
	work     sync.WaitGroup
	gone     bool
}

// options are the options of a node beside the server.
func options(srv *natsserver.Server, tb testing.TB) *streams.Options {
	user, password := srv.Node()
	return &streams.Options{
		Options: conn.Options{
			Dialer:   srv.Dial,
			Name:     "node",
			User:     user,
			Password: password,
			Inbox:    conn.NodeInbox,
			Logger:   slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		}, Partitions: 2,
		Probe: func(context.Context) ([]streams.SyncState, error) {
			always, interval, err := srv.Sync()
			return []streams.SyncState{{Server: srv.Name(), Always: always, Interval: interval}}, err
		},
	}
}

// startNode starts a node as an incarnation. It must be stopped, or killed.
func startNode(t testing.TB, srv *natsserver.Server, incarnation string) *node {
	t.Helper()
	return startNodeWith(t, srv, incarnation, &spec{})
}

// spec lists the differences of a node from the default one.
type spec struct {
	slots      int    // zero is 64
	partitions uint32 // zero is two
	pool       string // empty is dispatch.DefaultPool
	// more are workflows beside the usual ones, only those instead of them.
	more, only []flow.Registration
	members    *members // nil: it asks who lives
	// signal, if set, replaces how the relay applies signals; own is the node's way.
	signal func(own func(context.Context, journal.Signal) error) func(context.Context, journal.Signal) error
	// delivered, if set, replaces how delivered work is handled; own is the node's way.
	delivered func(own handler) handler
	// intake, if set, changes the node's handling of tasks.
	intake func(*dispatch.Intake)
	// take, if set, replaces how dispatched runs are handled; own is the node's way.
	take func(own taker) taker
	// disk, if set, returns the node's view of the disk of the streams.
	disk func() streams.Disk
}

// leaves keeps tasks that cannot begin at once in their stream.
func leaves(in *dispatch.Intake) {
	enqueue := in.Enqueue
	in.Enqueue = func(ctx context.Context, k journal.Task, c *journal.CancelRequested) error {
		if c == nil {
			return run.ErrBusy
		}
		return enqueue(ctx, k, c)
	}
}

// taker takes dispatched runs.
type taker = func(context.Context, journal.Task) (journal.Answer, error)

// handler takes delivered work.
type handler = func(context.Context, journal.Work) (journal.Answer, error)

func startNodeWith(t testing.TB, srv *natsserver.Server, incarnation string, sp *spec) *node {
	t.Helper()
	ctx := t.Context()
	slots, pool := cmp.Or(sp.slots, 64), cmp.Or(sp.pool, dispatch.DefaultPool)
	opts := options(srv, t)
	opts.Disk = sp.disk
	opts.Partitions = cmp.Or(sp.partitions, opts.Partitions)
	own := must.Get(api.Connect(ctx, opts))(t)
	must.Do(t, own.Streams.Provision(ctx))
	n := &node{t: t, srv: srv, conn: own, hold: make(chan struct{})}
	log := own.Logs.Log()
	values := journal.NewValues(log)
	model := must.Get(scripted.New(scripted.Echo(), nil))(t)
	rt := &engine.Runtime{
		Values: values, Models: model, Mint: own.Logs.Minter(), Node: "node", OnDelta: own.PublishDelta, OnStart: own.PublishStart,
		Blobs: func(t session.Tenant) blob.Store { return own.Logs.Blobs(t) },
	}
	n.rt = rt
	registry := &engine.Registry{}
	usual := []flow.Registration{
		{Name: "agent", Description: "answers", Revision: "1", NewFor: func(s flow.Info) (flow.Workflow, error) {
			return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
				var text string
				if err := json.Unmarshal(s.Input, &text); err != nil {
					return v, fmt.Errorf("the input is not text: %w", err)
				}
				return (&flow.Agent{Name: "answerer"}).Forward(ctx, v.With(session.UserText(text)))
			}), nil
		}},
		{Name: "hold", Description: "waits", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
				select {
				case <-n.hold:
					return v.With(session.UserText("held")), nil
				case <-ctx.Done():
					return v, context.Cause(ctx)
				}
			})
		}},
		{Name: "once", Description: "does something that must not happen twice", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
				did, err := flow.Do(ctx, "pay", func(ctx context.Context) (string, error) {
					select {
					case <-n.hold:
						return "paid", nil
					case <-ctx.Done():
						return "", context.Cause(ctx)
					}
				}, tool.NonIdempotent)
				return v.With(session.UserText(did)), err
			})
		}},
	}
	if sp.only != nil {
		usual = sp.only
	}
	for _, g := range append(usual, sp.more...) {
		must.Do(t, registry.Register(g))
	}
	n.sys = actors.New(&actors.Options{
		Log: log, Spills: true, Values: values, Incarnation: incarnation, Runtime: rt, Workflows: registry, Slots: slots,
		Deliver: own.Dispatch.Delivery.Deliver,
		Drain:   50 * time.Millisecond, Alive: sp.members.alive(), Changed: sp.members.next(),
	})
	n.serve(ctx, pool, registry, values, sp)
	t.Cleanup(n.kill) // of a test that failed
	return n
}

func (n *node) serve(ctx context.Context, pool string, registry *engine.Registry, values *journal.Values, sp *spec) {
	t, own, sys, m := n.t, n.conn, n.sys, sp.members
	t.Helper()
	ctx, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	var intake context.Context
	intake, n.intake = context.WithCancel(ctx)
	keep := func(s *conn.Service, err error) {
		t.Helper()
		must.Do(t, err)
		n.services = append(n.services, s)
	}
	delivered := sys.Delivered
	if sp.delivered != nil {
		delivered = sp.delivered(delivered)
	}
	keep(own.Dispatch.Delivery.ServeDeliver(ctx, sys.Incarnation(), delivered))
	keep(own.ServeControl(ctx, sys.Signal, nil, nil))
	keep(own.ServeLive(ctx, sys.Incarnation(), sys.Live))
	signal := sys.Signal
	if sp.signal != nil {
		signal = sp.signal(signal)
	}
	relay := own.Dispatch.StartRelay(ctx, &dispatch.RelayOptions{Incarnation: sys.Incarnation(), Known: m.known(), Changed: m.news(), Signal: signal})
	keep(own.ServeQueries(ctx, &api.Queries{Values: values, Version: "1.0.0", Live: sys.Live, Incarnation: sys.Incarnation()}))
	var offers []messages.Workflow
	for _, g := range registry.All() {
		w := messages.Workflow{Name: g.Name, Description: g.Description, Revision: g.Revision}
		if g.Batch {
			w.Class = messages.ClassBatch
		}
		offers = append(offers, w)
	}
	must.Do(t, own.Dispatch.Registry.Register(ctx, pool, offers))
	for name, f := range map[string]func() error{
		"room":  func() error { return own.Streams.Capacity.WatchRoom(ctx) },
		"relay": relay.Wait,
		"tasks": func() error {
			in := dispatch.Intake{
				Accept: sys.Accept, Enqueue: sys.Enqueue, Signal: sys.Signal,
				Offers: func(name string) (string, bool) { g, ok := registry.Lookup(name); return g.Revision, ok },
			}
			if sp.intake != nil {
				sp.intake(&in)
			}
			return own.Dispatch.PullTasks(intake, &in)
		},
		"runs": func() error {
			take := sys.Dispatched
			if sp.take != nil {
				take = sp.take(take)
			}
			return own.Dispatch.ServeRuns(intake, &dispatch.Host{Incarnation: sys.Incarnation(), Pool: pool, Free: sys.Free, Freed: sys.Freed(), Take: take})
		},
		"announce": func() error {
			return own.Announce(ctx, sys.Incarnation(), func() messages.Node {
				return messages.Node{Name: "node", Slots: 64, Free: sys.Free(), Full: own.Streams.Capacity.Full()}
			}, func() {})
		},
	} {
		n.work.Go(func() {
			if err := f(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// operatorOf is a connection with the rights of an operator, up to the end of
// the test.
func operatorOf(t testing.TB, srv *natsserver.Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	user, password := srv.Operator()
	nc := must.Get(nats.Connect("", nats.InProcessServer(inProcess(srv.Dial)), nats.UserInfo(user, password)))(t)
	t.Cleanup(nc.Close)
	js := must.Get(jetstream.New(nc))(t)
	return nc, js
}

// operator reads streams as an operator does.
func (n *node) operator() jetstream.JetStream {
	n.t.Helper()
	if n.js == nil {
		_, n.js = operatorOf(n.t, n.srv)
	}
	return n.js
}

// stored returns all messages of a stream.
func (n *node) stored(t *testing.T, stream string) []*jetstream.RawStreamMsg {
	t.Helper()
	s := must.Get(n.operator().Stream(t.Context(), stream))(t)
	var out []*jetstream.RawStreamMsg
	for seq := max(s.CachedInfo().State.FirstSeq, 1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		must.Do(t, err)
		out = append(out, m)
	}
	return out
}

// told is a message of LINEAGE with its records.
type told struct {
	*jetstream.RawStreamMsg
	records []messages.Record
}

// told returns the messages of LINEAGE.
func (n *node) told(t *testing.T) []told {
	t.Helper()
	var out []told
	for _, m := range n.stored(t, streams.StreamLineage) {
		records := must.Get(lineage.DecodeStored(m.Data))(t)
		out = append(out, told{m, records})
	}
	return out
}

// commits yields the commits of all sessions, and when they were stored: partition
// by partition, each in the order of its stream.
func (n *node) commits(t *testing.T) iter.Seq2[time.Time, commitlog.Commit] {
	return func(yield func(time.Time, commitlog.Commit) bool) {
		t.Helper()
		for p := range n.conn.Streams.Partitions() {
			for _, m := range n.stored(t, streams.EventStream(n.conn.Streams.Generation(), p)) {
				c := must.Get(commitlog.Decode(m.Data))(t)
				if !yield(m.Time, c) {
					return
				}
			}
		}
	}
}

func (n *node) letters(t *testing.T) []object {
	t.Helper()
	var out []object
	for _, m := range n.stored(t, streams.StreamDLQ) {
		out = append(out, read(t, m.Data))
	}
	return out
}

// pending returns how many tasks wait in the stream. The last task that a node claimed
// leaves it within a second.
func (n *node) pending(t *testing.T) int {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	return len(n.stored(t, streams.StreamTasks))
}

// stop drains the node.
func (n *node) stop() {
	n.t.Helper()
	if n.gone {
		return
	}
	n.gone = true
	drain, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), 50*time.Millisecond)
	defer cancel()
	must.Report(n.t, n.sys.Drain(drain))
	n.end()
}

// end stops everything but the System.
func (n *node) end() {
	n.t.Helper()
	n.cancel()
	n.work.Wait()
	var errs []error
	for _, s := range n.services {
		errs = append(errs, s.Stop())
	}
	must.Report(n.t, errors.Join(append(errs, n.conn.Conn.Close())...))
}
