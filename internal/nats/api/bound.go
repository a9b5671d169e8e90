package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/offload"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/remotelog"
	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// BoundTo returns the tenant that credentials bind a node to; "" if they are not of such
// a node. It connects for that.
func BoundTo(ctx context.Context, o *conn.Options) (session.Tenant, error) {
	c, err := conn.Connect(ctx, o)
	if err != nil {
		return "", err
	}
	t, err := c.Bound(ctx)
	return t, errors.Join(err, c.Close())
}

// Bound is the access of a node bound to a tenant, through requests to the nodes for all
// tenants.
type Bound struct {
	c      *Conn
	tenant session.Tenant
	// Level is the durability of the nodes that answer.
	Level string
}

// Bind asks for the location of a tenant's sessions. The connection has Options.Client;
// from now on it has the event streams.
func (c *Conn) Bind(ctx context.Context, t session.Tenant) (*Bound, error) {
	b := &Bound{c: c, tenant: t}
	m, err := b.patiently(ctx, storeAbout, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("nats/api: a node of tenant %s asks nodes for all tenants: %w", t, err)
	}
	var about aboutStore
	if err := json.Unmarshal(m.Data, &about); err != nil {
		return nil, fmt.Errorf("nats/api: which event streams there are: %w", err)
	}
	if _, err := streams.ParseLevel(about.Level); err != nil || about.Generation == 0 || about.Partitions == 0 {
		return nil, fmt.Errorf("nats/api: which event streams there are: the answer %q says it not: %w", m.Data, run.ErrMalformed)
	}
	c.Streams.O.Generation, c.Streams.O.Partitions, b.Level = about.Generation, about.Partitions, about.Level
	return b, nil
}

// Tenant is whose node this is.
func (b *Bound) Tenant() session.Tenant { return b.tenant }

// ask sends one request.
func (b *Bound) ask(ctx context.Context, verb string, header nats.Header, body []byte) (*nats.Msg, error) {
	m, err := b.c.Conn.Request(ctx, &nats.Msg{Subject: messages.StoreSubject(b.tenant, verb), Header: header, Data: body})
	if err != nil {
		return nil, err
	}
	if m.Header.Get(micro.ErrorCodeHeader) != "" {
		err = wire.ReplyError(m.Data)
	}
	return m, err
}

// patiently sends a request that may be answered twice, and repeats it until an answer
// arrives.
func (b *Bound) patiently(ctx context.Context, verb string, header nats.Header, body []byte) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, conn.RetryBudget)
	defer cancel()
	for wait := conn.NewBackoff(); ; {
		m, err := b.ask(ctx, verb, header, body)
		if err == nil || !requests.Passes(err) {
			return m, err
		}
		if wait.Sleep(ctx) != nil {
			return nil, fmt.Errorf("%w: no node for all tenants does it: %w", session.ErrUnavailable, err)
		}
	}
}

// Log returns the logs of the tenant's sessions, with their snapshots.
func (b *Bound) Log() commitlog.Log {
	l := &boundLog{remotelog.Log{Page: b.c.Requests.Commits}, b}
	return &boundStore{offload.New(l, b.Blobs, nil), l}
}

// Blobs returns the blobs of a tenant; operations on another tenant's fail.
func (b *Bound) Blobs(t session.Tenant) blob.Store {
	return wire.NewBlobs(&boundBlobs{b.c.Requests.TenantBlobs(t)})
}

// boundBlobs are requests.TenantBlobs whose absence ends an attempt, and not a run.
type boundBlobs struct{ *requests.TenantBlobs }

// Load implements wire.BlobMessages.
func (b *boundBlobs) Load(ctx context.Context, d blob.Digest) (data []byte, list bool, err error) {
	data, list, err = b.TenantBlobs.Load(ctx, d)
	return data, list, unavailable(ctx, err)
}

// Store implements wire.BlobMessages.
func (b *boundBlobs) Store(ctx context.Context, d blob.Digest, list bool, data []byte) error {
	return unavailable(ctx, b.TenantBlobs.Store(ctx, d, list, data))
}

// unavailable marks an error that only reports that no node for all tenants carried out the
// request, or that there is no room at the moment.
func unavailable(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, session.ErrUnavailable) {
		return err
	}
	for _, absent := range []error{conn.ErrNoAnswer, conn.ErrUnreachable, context.DeadlineExceeded, run.ErrBusy} {
		if errors.Is(err, absent) {
			return fmt.Errorf("%w: %w", session.ErrUnavailable, err)
		}
	}
	return err
}

// boundStore is a log that keeps large data in blobs, with snapshots.
type boundStore struct {
	commitlog.Log
	commitlog.Snapshotter
}

// boundLog is the log without that: it reads as clients do.
type boundLog struct {
	remotelog.Log
	b *Bound
}

var (
	_ commitlog.Log         = (*boundLog)(nil)
	_ commitlog.Snapshotter = (*boundLog)(nil)
)

// of refuses a session of another tenant, which the server would refuse without a word.
func (l *boundLog) of(t session.Tenant) error {
	if t != l.b.tenant {
		return fmt.Errorf("nats/api: session of tenant %s, on a node of tenant %s: %w", t, l.b.tenant, session.ErrTenant)
	}
	return nil
}

// Append implements commitlog.Log. A request whose answer is lost is sent again with the
// same bytes: the log either stores them and returns their position, or reports another
// writer. Once they may have arrived, no other answer ends the retries.
func (l *boundLog) Append(ctx context.Context, at commitlog.Position, c commitlog.Commit) (commitlog.Position, error) {
	if err := errors.Join(ctx.Err(), l.of(c.Key.Tenant)); err != nil {
		return commitlog.Position{}, err
	}
	raw, err := eventlog.Successor(at, c)
	if err != nil {
		return commitlog.Position{}, err
	}
	token, err := l.append(ctx, at, raw)
	if err != nil {
		return commitlog.Position{}, fmt.Errorf("nats/api: append %d to %s: %w", c.Seq, c.Key, err)
	}
	return commitlog.Position{Seq: c.Seq, Token: token, Hash: commitlog.HashOf(raw)}, nil
}

func (l *boundLog) append(ctx context.Context, at commitlog.Position, raw []byte) (uint64, error) {
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), conn.RetryBudget)
	defer cancel()
	maybe := false // an attempt may have been stored
	for wait := conn.NewBackoff(); ; {
		m, err := l.b.ask(patient, storeAppend, eventlog.HeaderOf(at), raw)
		switch {
		case err == nil:
			stored, err := eventlog.PositionOf(m.Header)
			return stored.Token, err
		case errors.Is(err, session.ErrConflict):
			return 0, err
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, run.ErrBusy):
			// The request was not sent, or not accepted.
		case requests.Passes(err):
			maybe = true
		case !maybe:
			return 0, err
		}
		if !maybe && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if wait.Sleep(patient) != nil {
			return 0, fmt.Errorf("%w: not settled after %v: %w", session.ErrUnavailable, conn.RetryBudget, err)
		}
	}
}

// Read implements commitlog.Log.
func (l *boundLog) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	return func(yield func(commitlog.Entry, error) bool) {
		if err := l.of(k.Tenant); err != nil {
			yield(commitlog.Entry{}, err)
			return
		}
		for e, err := range l.Log.Read(ctx, k, after) {
			if !yield(e, unavailable(ctx, err)) {
				return
			}
		}
	}
}

// sessionHeader is the header of a request about a session.
func sessionHeader(k session.Key) nats.Header { return nats.Header{headerSession: {string(k.ID)}} }

// Last implements commitlog.Log.
func (l *boundLog) Last(ctx context.Context, k session.Key) (commitlog.Entry, error) {
	if err := errors.Join(k.Valid(), l.of(k.Tenant)); err != nil {
		return commitlog.Entry{}, err
	}
	m, err := l.b.patiently(ctx, storeLast, sessionHeader(k), nil)
	if err != nil {
		return commitlog.Entry{}, fmt.Errorf("nats/api: last commit of %s: %w", k, err)
	}
	at, err := eventlog.PositionOf(m.Header)
	if err != nil {
		return commitlog.Entry{}, fmt.Errorf("nats/api: last commit of %s: %w", k, err)
	}
	c, err := commitlog.Decode(m.Data)
	if err != nil || c.Key != k || c.Seq != at.Seq || commitlog.HashOf(m.Data) != at.Hash {
		return commitlog.Entry{}, fmt.Errorf("nats/api: last commit of %s: the answer is another one: %w", k, errors.Join(session.ErrForeign, err))
	}
	return commitlog.Entry{Commit: c, At: at, Raw: string(m.Data)}, nil
}

// Save implements commitlog.Snapshotter.
func (l *boundLog) Save(ctx context.Context, k session.Key, at commitlog.Position, state []byte) error {
	if err := errors.Join(k.Valid(), l.of(k.Tenant)); err != nil {
		return err
	}
	header := eventlog.HeaderOf(at)
	header[headerSession] = []string{string(k.ID)}
	return l.keep(ctx, storeSave, header, state)
}

// SavePage implements commitlog.Snapshotter.
func (l *boundLog) SavePage(ctx context.Context, t session.Tenant, digest string, page []byte) error {
	if err := errors.Join(session.ValidID("page", digest), l.of(t)); err != nil {
		return err
	}
	return l.keep(ctx, storeSavePage, nats.Header{headerPage: {digest}}, page)
}

func (l *boundLog) keep(ctx context.Context, verb string, header nats.Header, data []byte) error {
	_, err := l.b.patiently(ctx, verb, header, data)
	if errors.Is(err, nats.ErrMaxPayload) {
		err = fmt.Errorf("%w: %w", session.ErrTooLarge, err)
	}
	if err != nil {
		return fmt.Errorf("nats/api: %s: %w", verb, err)
	}
	return nil
}

// Load implements commitlog.Snapshotter.
func (l *boundLog) Load(ctx context.Context, k session.Key) (at commitlog.Position, state []byte, err error) {
	if err := errors.Join(k.Valid(), l.of(k.Tenant)); err != nil {
		return at, nil, err
	}
	m, err := l.b.patiently(ctx, storeLoad, sessionHeader(k), nil)
	if err == nil {
		at, err = eventlog.PositionOf(m.Header)
	}
	if err != nil {
		return at, nil, fmt.Errorf("nats/api: load snapshot of %s: %w", k, err)
	}
	return at, m.Data, nil
}

// LoadPage implements commitlog.Snapshotter.
func (l *boundLog) LoadPage(ctx context.Context, t session.Tenant, digest string) ([]byte, error) {
	if err := errors.Join(session.ValidID("page", digest), l.of(t)); err != nil {
		return nil, err
	}
	m, err := l.b.patiently(ctx, storeLoadPage, nats.Header{headerPage: {digest}}, nil)
	if err != nil {
		return nil, fmt.Errorf("nats/api: load page %s: %w", digest, err)
	}
	return m.Data, nil
}

// Deliver is Dispatch.Deliver through a node for all tenants.
func (b *Bound) Deliver(ctx context.Context, incarnation string, w journal.Work) (journal.Answer, error) {
	body, err := messages.Encode(delivery{incarnation, translate.WorkOf(w)})
	if err != nil {
		return "", err
	}
	m, err := b.c.Conn.Await(ctx, messages.StoreSubject(b.tenant, storeDeliver), body)
	if err == nil && m.Header.Get(micro.ErrorCodeHeader) != "" {
		err = wire.ReplyError(m.Data)
	}
	if err != nil {
		return "", fmt.Errorf("nats/api: deliver to %s: %w", incarnation, err)
	}
	a, err := wire.DecodeAnswer(m.Data)
	if err != nil {
		return "", fmt.Errorf("nats/api: deliver to %s: %w", incarnation, err)
	}
	return journal.Answer(a.Note), a.Err()
}

// Announce is Conn.Announce through nodes for all tenants.
func (b *Bound) Announce(ctx context.Context, incarnation string, about func() messages.Node, entered func()) error {
	return announcing(ctx, b.c.Conn.Logger, func(ctx context.Context) error {
		n := about()
		n.Incarnation = incarnation
		body, err := messages.Encode(n)
		if err == nil {
			_, err = b.ask(ctx, storeAnnounce, nil, body)
		}
		return err
	}, func(ctx context.Context) error {
		_, err := b.ask(ctx, storeLeave, nil, []byte(incarnation))
		return err
	}, entered)
}

// Offer offers workflows to the tenant, whose own nodes get their runs.
func (b *Bound) Offer(ctx context.Context, all []messages.Workflow) error {
	body, err := messages.Encode(offer{all})
	if err == nil {
		_, err = b.patiently(ctx, storeOffer, nil, body)
	}
	if err != nil {
		return fmt.Errorf("nats/api: offer workflows to tenant %s: %w", b.tenant, err)
	}
	return nil
}

// Nodes returns the nodes that the tenant may see: its own, and those for all tenants.
func (b *Bound) Nodes(ctx context.Context) ([]messages.Node, error) {
	var all wire.Nodes
	err := b.c.Requests.Ask(ctx, b.tenant, messages.QueryNodes, wire.Query{}, &all)
	return all.Nodes, err
}

// Workflows returns the workflows on offer to the tenant. For named workflows that the
// answering replica does not have, it asks the registry's leader.
func (b *Bound) Workflows(ctx context.Context, names ...string) ([]messages.Workflow, error) {
	var all wire.Workflows
	if err := b.c.Requests.Ask(ctx, b.tenant, messages.QueryWorkflows, wire.Query{}, &all); err != nil {
		return nil, err
	}
	for _, w := range all.Workflows {
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == w.Name })
	}
	more, err := b.named(ctx, named{Workflows: names})
	return append(all.Workflows, more.Workflows...), err
}

// Tools returns the tools that processes have announced to the tenant; t has to be that
// tenant. The named ones are read from the registry's leader.
func (b *Bound) Tools(ctx context.Context, t session.Tenant, names ...string) ([]messages.Tool, error) {
	var all wire.Tools
	if err := b.c.Requests.Ask(ctx, t, messages.QueryTools, wire.Query{}, &all); err != nil {
		return nil, err
	}
	now, err := b.named(ctx, named{Tools: names})
	out := slices.DeleteFunc(all.Tools, func(v messages.Tool) bool { return slices.Contains(names, v.Name) })
	return append(out, now.Tools...), err
}

func (b *Bound) named(ctx context.Context, n named) (out found, err error) {
	if len(n.Tools)+len(n.Workflows) == 0 {
		return out, nil
	}
	body, err := messages.Encode(n)
	if err != nil {
		return out, err
	}
	m, err := b.patiently(ctx, storeNamed, nil, body)
	if err == nil {
		err = json.Unmarshal(m.Data, &out)
	}
	if err != nil {
		return out, fmt.Errorf("nats/api: look for names on offer: %w", err)
	}
	return out, nil
}

// Answering returns nil if this node can accept work now: it is connected, and a node for
// all tenants answers.
func (b *Bound) Answering(ctx context.Context) error {
	if !b.c.Conn.Connected() {
		return fmt.Errorf("%w: %s: the connection is lost and is being made again", conn.ErrUnreachable, b.c.Conn.Servers())
	}
	if _, err := b.ask(ctx, storeAbout, nil, nil); err != nil {
		return fmt.Errorf("nats/api: no node for all tenants answers one of tenant %s: %w; start one", b.tenant, err)
	}
	return nil
}
