package api

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/session"
)

// bindings are logs of bound nodes, one for each tenant, over one connection, for suites
// that work with several tenants.
type bindings struct {
	t     *testing.T
	asked *Conn // of the node that answers
	asks  *Conn

	mu   sync.Mutex
	logs map[session.Tenant]commitlog.Log
}

// serveStore answers all that bound nodes ask, and returns a connection that may ask it
// for any tenant, through the wire.
func serveStore(t *testing.T, c *Conn, srv *natsserver.Server, w *natstest.Wire) *Conn {
	t.Helper()
	store := must.Get(c.ServeStore(t.Context(), nil))(t)
	queries := must.Get(c.ServeQueries(t.Context(), &Queries{Values: journal.NewValues(c.Logs.Log())}))(t)
	control := must.Get(c.ServeControl(t.Context(), func(context.Context, journal.Signal) error { return nil }, nil, nil))(t)
	t.Cleanup(func() { must.Report(t, errors.Join(store.Stop(), queries.Stop(), control.Stop())) })
	user, password := srv.Operator()
	o := &streams.Options{Options: conn.Options{Dialer: srv.Dial, User: user, Password: password, Inbox: conn.NodeInbox}, Client: true}
	if w != nil {
		return layer.DialThrough(t, w, o)
	}
	return layer.Dial(t, o)
}

func (b *bindings) of(t session.Tenant) commitlog.Log {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.logs[t] == nil {
		bound := must.Get(b.asks.Bind(b.t.Context(), t))(b.t)
		b.logs[t] = bound.Log()
	}
	return b.logs[t]
}

func (b *bindings) Append(ctx context.Context, at commitlog.Position, c commitlog.Commit) (commitlog.Position, error) {
	// The suite's ids are not minted, so that queries take them for names.
	if at.Seq == 0 && c.Key.Valid() == nil {
		subject := streams.KeySubject(streams.BucketAlias, translate.SessionAliasKey(c.Key.Tenant, string(c.Key.ID)))
		_, err := b.asked.Messages.PublishExpecting(context.WithoutCancel(ctx), subject, 0, nil, fmt.Appendf(nil, `{"session":%q}`, c.Key.ID))
		if err != nil && !errors.Is(err, conn.ErrExpectation) {
			return commitlog.Position{}, err
		}
	}
	return b.of(c.Key.Tenant).Append(ctx, at, c)
}

func (b *bindings) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	return b.of(k.Tenant).Read(ctx, k, after)
}

func (b *bindings) Last(ctx context.Context, k session.Key) (commitlog.Entry, error) {
	return b.of(k.Tenant).Last(ctx, k)
}

func (b *bindings) Save(ctx context.Context, k session.Key, at commitlog.Position, state []byte) error {
	return b.of(k.Tenant).(commitlog.Snapshotter).Save(ctx, k, at, state)
}

func (b *bindings) Load(ctx context.Context, k session.Key) (commitlog.Position, []byte, error) {
	return b.of(k.Tenant).(commitlog.Snapshotter).Load(ctx, k)
}

func (b *bindings) SavePage(ctx context.Context, t session.Tenant, digest string, page []byte) error {
	return b.of(t).(commitlog.Snapshotter).SavePage(ctx, t, digest, page)
}

func (b *bindings) LoadPage(ctx context.Context, t session.Tenant, digest string) ([]byte, error) {
	return b.of(t).(commitlog.Snapshotter).LoadPage(ctx, t, digest)
}

// Foul implements sessiontest.Fouler.
func (b *bindings) Foul(ctx context.Context, k session.Key, raw []byte) error {
	_, subject, err := b.asked.Logs.Place(k)
	if err == nil {
		_, err = b.asked.Conn.JS.Publish(ctx, subject, raw)
	}
	return err
}

// TestBoundLogSuite runs the log suite on the log of a node bound to a tenant.
func TestBoundLogSuite(t *testing.T) {
	sessiontest.TestLog(t, func(t *testing.T) commitlog.Log {
		srv := natstest.Start(t, &natsserver.Options{Lazy: true})
		o := streamstest.NodeOptions(srv)
		o.Level = streams.Lazy
		c := layer.Dial(t, o)
		must.Do(t, c.Streams.Provision(t.Context()))
		c.Logs.Place = func(k session.Key) (stream, subject string, err error) {
			return streams.EventStream(1, 0), streams.PrefixEvent + "1.0." + string(k.Tenant) + "." + string(k.ID), k.Valid()
		}
		return &bindings{t: t, asked: c, asks: serveStore(t, c, srv, nil), logs: map[session.Tenant]commitlog.Log{}}
	})
}

// TestBoundAppendSettles loses the answers of appends, and requests in transit: each commit
// is appended once, and a writer that was overtaken meanwhile gets a conflict.
func TestBoundAppendSettles(t *testing.T) {
	srv := natstest.Start(t, &natsserver.Options{Lazy: true})
	o := streamstest.NodeOptions(srv)
	o.Level = streams.Lazy
	c := layer.Dial(t, o)
	must.Do(t, c.Streams.Provision(t.Context()))
	var w natstest.Wire
	asks := serveStore(t, c, srv, &w)
	b, err := asks.Bind(t.Context(), "acme")
	must.Do(t, err)
	l := b.Log()
	mint := commitlog.IDGenerator{Generation: 1, Partitions: c.Streams.Partitions()}
	k := session.Key{Tenant: "acme", ID: mint.ID("settles")}
	first := sessiontest.Grow(t, l, k, commitlog.Position{}, 1)

	hook, lost := natstest.Once("Rath-Token", natstest.Drop)
	w.Set(hook, nil)
	second, err := l.Append(t.Context(), first, sessiontest.Commit(k, first, "the answer is lost"))
	if err != nil || !lost() || second.Seq != 2 {
		t.Fatalf("after a lost answer: %+v, %v, lost %v", second, err, lost())
	}
	hook, lost = natstest.Once("the request is lost", natstest.Drop)
	w.Set(nil, hook)
	third, err := l.Append(t.Context(), second, sessiontest.Commit(k, second, "the request is lost"))
	if err != nil || !lost() || third.Seq != 3 {
		t.Fatalf("after a lost request: %+v, %v, lost %v", third, err, lost())
	}
	// Another writer is first: that answer is lost, and then comes a conflict.
	var overtaken atomic.Bool
	hook, lost = natstest.Once("overtaken", func(p []byte) bool {
		overtaken.Store(true)
		return false
	})
	w.Set(nil, hook)
	sessiontest.Grow(t, c.Logs.Log(), k, third, 1)
	if _, err := l.Append(t.Context(), third, sessiontest.Commit(k, third, "overtaken")); !errors.Is(err, session.ErrConflict) || !overtaken.Load() {
		t.Errorf("behind another writer: %v, lost %v", err, lost())
	}
	w.Set(nil, nil)
	var texts []string
	for _, e := range sessiontest.ReadAll(t, c.Logs.Log(), k, commitlog.Position{}) {
		texts = append(texts, e.Commit.Events[0].Data)
	}
	if len(texts) != 4 || !strings.Contains(texts[1], "the answer is lost") || !strings.Contains(texts[2], "the request is lost") {
		t.Errorf("%d commits: %q", len(texts), texts)
	}
	if at, err := l.Last(t.Context(), k); err != nil || at.At.Seq != 4 {
		t.Errorf("last: %+v, %v", at.At, err)
	}
}

// TestBoundWithoutNodes leaves no node for all tenants: requests of a bound node are
// unavailable, which ends an attempt and not its run, and succeed with the next node.
func TestBoundWithoutNodes(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
		store := must.Get(c.ServeStore(t.Context(), nil))(t)
		b := must.Get(c.Bind(t.Context(), "acme"))(t)
		must.Do(t, store.Stop())
		l, k := b.Log(), session.Key{Tenant: "acme", ID: c.Logs.Minter().ID("alone")}
		first := sessiontest.Commit(k, commitlog.Position{}, "first")
		for name, do := range map[string]func() error{
			"append": func() error {
				_, err := l.Append(t.Context(), commitlog.Position{}, first)
				return err
			},
			"last": func() error {
				_, err := l.Last(t.Context(), k)
				return err
			},
			"read": func() (err error) {
				for _, err = range l.Read(t.Context(), k, commitlog.Position{}) {
				}
				return err
			},
			"put a blob": func() error {
				_, err := b.Blobs("acme").Put(t.Context(), strings.NewReader("x"))
				return err
			},
			"get a blob": func() error {
				_, err := b.Blobs("acme").Get(t.Context(), blob.Sum([]byte("x")))
				return err
			},
		} {
			if err := do(); !errors.Is(err, session.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, do := range map[string]func() error{
			"append to another tenant": func() error {
				_, err := l.Append(t.Context(), commitlog.Position{}, sessiontest.Commit(session.Key{Tenant: "bolt", ID: k.ID}, commitlog.Position{}, "x"))
				return err
			},
			"read another tenant": func() (err error) {
				for _, err = range l.Read(t.Context(), session.Key{Tenant: "bolt", ID: k.ID}, commitlog.Position{}) {
				}
				return err
			},
		} {
			if err := do(); !errors.Is(err, session.ErrTenant) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := b.Answering(t.Context()); err == nil {
			t.Error("it can take work, it says")
		}
		store = must.Get(c.ServeStore(t.Context(), nil))(t)
		if at, err := l.Append(t.Context(), commitlog.Position{}, first); err != nil || at.Seq != 1 {
			t.Errorf("once there is a node again: %+v, %v", at, err)
		}
		must.Report(t, store.Stop())
	})
}
