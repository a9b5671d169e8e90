package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// A node bound to a tenant reaches no stream. It sends its writes, and reads beyond those
// of clients, to the nodes for all tenants: one of them carries them out, with its own log.
// The subject names the tenant, which the server enforces, and everything that the body
// names has to belong to that tenant.

// The verbs of messages.StoreSubject, beside dispatch.VerbStanding.
const (
	storeAbout    = "about"    // the event streams, and their durability
	storeAppend   = "append"   // a commit
	storeLast     = "last"     // the newest commit of a session
	storeSave     = "save"     // a snapshot
	storeLoad     = "load"     // a snapshot
	storeSavePage = "savepage" // a page of snapshots
	storeLoadPage = "loadpage" // a page of snapshots
	storeDeliver  = "deliver"  // work for the holder of a session
	storeAnnounce = "announce" // the node's entry
	storeLeave    = "leave"    // the end of it
	storeOffer    = "offer"    // workflows for the tenant
	storeMemory   = "memory"   // an operation on a memory
	storeNamed    = "named"    // workflows and tools by their names, as the leader of the registry has them
)

// Headers of requests.
const (
	headerSession = "Rath-Session"
	headerPage    = "Rath-Page"
)

// aboutStore is the answer to storeAbout.
type aboutStore struct {
	Generation uint32 `json:"generation"`
	Partitions uint32 `json:"partitions"`
	Level      string `json:"level"`
}

// delivery is the body of storeDeliver.
type delivery struct {
	Incarnation string         `json:"incarnation"`
	Work        translate.Work `json:"work"`
}

// named is the body of storeNamed, at most wire.MaxTasks names of each.
type named struct {
	Tools     []string `json:"tools,omitempty"`
	Workflows []string `json:"workflows,omitempty"`
}

// found is the answer to storeNamed: the existing ones.
type found struct {
	Tools     []messages.Tool     `json:"tools,omitempty"`
	Workflows []messages.Workflow `json:"workflows,omitempty"`
}

// offer is the body of storeOffer.
type offer struct {
	Workflows []messages.Workflow `json:"workflows"`
}

const (
	// maxOffered is how many workflows a tenant's own nodes may offer, maxOffer the maximum
	// size of one in bytes.
	maxOffered = 128
	maxOffer   = 32 << 10
	// maxEntry is the most bytes of the entry of a bound node, maxName of a text in it, and
	// a tenant has at most schedule.MaxBound of them: all tenants share the bucket.
	maxEntry = 16 << 10
	maxName  = 256
)

// tenantStore answers requests of bound nodes.
type tenantStore struct {
	c        *Conn
	log      commitlog.Log
	memories Memories
}

// ServeStore answers requests of nodes bound to a tenant, each request by one of the nodes
// for all tenants. Nil memories are none.
func (c *Conn) ServeStore(ctx context.Context, memories Memories) (*conn.Service, error) {
	t := tenantStore{c, c.Logs.StoredLog(), memories}
	s := c.Conn.NewService(ctx)
	subject := messages.StorePrefix + "*.*"
	sub, err := c.Conn.NC.QueueSubscribe(subject, queueGroup, func(m *nats.Msg) {
		if m.Reply == "" {
			t.hear(m)
			return
		}
		s.Go(conn.RequestOf(m), func(ctx context.Context) {
			out, err := t.answer(ctx, m)
			t.respond(m, out, unanswered(ctx, err))
		}, func(err error) { t.respond(m, nil, err) })
	})
	return s.Begun(ctx, c.Conn, subject, sub, err)
}

// hear processes a message without an answer.
func (t *tenantStore) hear(m *nats.Msg) {
	of, verb, ok := messages.ParseStoreSubject(m.Subject)
	if !ok || verb != dispatch.VerbStanding {
		return
	}
	if err := t.c.Dispatch.PassStanding(of, m.Data); err != nil {
		t.c.Conn.Logger.Warn("what a node said of itself was not passed on", "tenant", string(of), "err", err)
	}
}

// respond sends an answer, or an error with the headers of a service's.
func (t *tenantStore) respond(m, out *nats.Msg, err error) {
	if err != nil {
		e := wire.ErrorOf(err)
		out = &nats.Msg{Header: nats.Header{micro.ErrorHeader: {oneLine(e.Text)}, micro.ErrorCodeHeader: {string(e.Code)}}}
		out.Data, err = messages.Encode(e)
	}
	if err == nil {
		err = m.RespondMsg(out)
	}
	if err != nil {
		t.c.Conn.Logger.Warn("a bound node was not answered", "subject", m.Subject, "err", err)
	}
}

// answer carries out a request for the tenant that its subject names.
func (t *tenantStore) answer(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	of, verb, ok := messages.ParseStoreSubject(m.Subject)
	if !ok {
		return nil, fmt.Errorf("subject %q: %w: request %s<tenant>.<verb>", m.Subject, run.ErrMalformed, messages.StorePrefix)
	}
	k := session.Key{Tenant: of, ID: session.ID(m.Header.Get(headerSession))}
	switch verb {
	case storeAbout:
		return encoded(aboutStore{t.c.Streams.Generation(), t.c.Streams.Partitions(), string(t.c.Streams.Level())})
	case storeAppend:
		return t.append(ctx, of, m)
	case storeLast:
		e, err := t.log.Last(ctx, k)
		return &nats.Msg{Header: eventlog.HeaderOf(e.At), Data: []byte(e.Raw)}, err
	case storeSave:
		at, err := eventlog.PositionOf(m.Header)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", run.ErrMalformed, err)
		}
		return &nats.Msg{}, t.snapshots().Save(ctx, k, at, m.Data)
	case storeLoad:
		at, state, err := t.snapshots().Load(ctx, k)
		return &nats.Msg{Header: eventlog.HeaderOf(at), Data: state}, err
	case storeSavePage:
		return &nats.Msg{}, t.snapshots().SavePage(ctx, of, m.Header.Get(headerPage), m.Data)
	case storeLoadPage:
		page, err := t.snapshots().LoadPage(ctx, of, m.Header.Get(headerPage))
		return &nats.Msg{Data: page}, err
	case storeDeliver:
		return t.deliver(ctx, of, m.Data)
	case storeAnnounce:
		return t.announce(ctx, of, m.Data)
	case storeLeave:
		incarnation, err := ownNode(of, string(m.Data))
		known := false
		if err == nil {
			known, err = t.entered(ctx, incarnation)
		}
		if err == nil && known {
			err = t.c.removeNode(ctx, incarnation)
		}
		return &nats.Msg{}, err
	case storeOffer:
		return t.offer(ctx, of, m.Data)
	case storeMemory:
		return t.remember(ctx, of, m.Data)
	case storeNamed:
		return t.named(ctx, of, m.Data)
	}
	return nil, fmt.Errorf("verb %q: %w: nodes of this release do not know it", verb, run.ErrNotSupported)
}

func (t *tenantStore) snapshots() commitlog.Snapshotter { return t.log.(commitlog.Snapshotter) }

// encoded is an answer in JSON.
func encoded(v any) (*nats.Msg, error) {
	data, err := messages.Encode(v)
	return &nats.Msg{Data: data}, err
}

// append stores a commit. Its bytes have to equal the bytes that this log would store.
func (t *tenantStore) append(ctx context.Context, of session.Tenant, m *nats.Msg) (*nats.Msg, error) {
	at, err := eventlog.PositionOf(m.Header)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	c, err := commitlog.Decode(m.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	if err := within(of, &c); err != nil {
		return nil, err
	}
	raw, err := eventlog.Successor(at, c)
	if err == nil && !bytes.Equal(raw, m.Data) {
		err = session.ErrForeign
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", run.ErrMalformed, err)
	}
	at, err = t.log.Append(ctx, at, c)
	return &nats.Msg{Header: eventlog.HeaderOf(at)}, err
}

// within rejects a commit that belongs or refers to another tenant. It does not inspect the
// data of an event in a blob: a reference is followed only if it has the hash of the
// commit, which no other tenant has.
func within(of session.Tenant, c *commitlog.Commit) error {
	if c.Key.Tenant != of {
		return fmt.Errorf("commit of %s, by a node of tenant %s: %w", c.Key, of, session.ErrTenant)
	}
	for _, f := range journal.Facts(*c) {
		for _, l := range f.Links() {
			if l.Tenant != of {
				return fmt.Errorf("commit of %s refers to %s: %w", c.Key, l.Key, session.ErrTenant)
			}
		}
		if v, ok := f.What.(journal.Claimed); ok && v.Home.Tenant != of {
			return fmt.Errorf("commit of %s has a run of %s: %w", c.Key, v.Home, session.ErrTenant)
		}
	}
	return nil
}

// deliver hands work to the incarnation that holds a session of the tenant.
func (t *tenantStore) deliver(ctx context.Context, of session.Tenant, body []byte) (*nats.Msg, error) {
	var d delivery
	if err := json.Unmarshal(body, &d); err != nil {
		return nil, fmt.Errorf("delivery: %w: %w", run.ErrMalformed, err)
	}
	w, err := d.Work.Decoded()
	if err != nil {
		return nil, err
	}
	named := []session.Tenant{d.Work.Tenant}
	if b := d.Work.Branch; b != nil {
		named = append(named, b.Base.Tenant)
	}
	if r := d.Work.Received; r != nil && r.Branch != nil {
		named = append(named, r.Branch.Link.Tenant)
	}
	if to, bound := messages.BoundTo(d.Incarnation); bound {
		named = append(named, to)
	}
	if w.Task != nil && w.Task.ForkOf != nil {
		named = append(named, w.Task.ForkOf.Tenant)
	}
	for _, other := range named {
		if other != of {
			return nil, fmt.Errorf("delivery to tenant %s, by a node of tenant %s: %w", other, of, session.ErrTenant)
		}
	}
	a, err := t.c.Dispatch.Delivery.Deliver(ctx, d.Incarnation, w)
	if err != nil {
		return nil, err
	}
	return encoded(wire.Answer{Done: a != journal.AnswerNotMine, Note: string(a)})
}

// ownNode returns the incarnation of a node of the tenant.
func ownNode(of session.Tenant, incarnation string) (string, error) {
	if t, bound := messages.BoundTo(incarnation); !bound || t != of {
		return "", fmt.Errorf("node %q does not belong to tenant %s: %w", incarnation, of, session.ErrTenant)
	}
	return incarnation, nil
}

// announce renews the entry of a node. People read it, so its texts are names.
func (t *tenantStore) announce(ctx context.Context, of session.Tenant, body []byte) (*nats.Msg, error) {
	var n messages.Node
	if len(body) > maxEntry {
		return nil, fmt.Errorf("entry of a node of %d bytes, at most %d are kept: %w", len(body), maxEntry, session.ErrTooLarge)
	}
	if err := json.Unmarshal(body, &n); err != nil {
		return nil, fmt.Errorf("entry of a node: %w: %w", run.ErrMalformed, err)
	}
	if _, err := ownNode(of, n.Incarnation); err != nil {
		return nil, err
	}
	for _, text := range slices.Concat([]string{n.Name, n.Version, n.Isolation, n.Durability}, n.Pools, n.Offers) {
		if len(text) > maxName || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, fmt.Errorf("entry of a node: %q: %w: want at most %d printable characters of ASCII", text, run.ErrMalformed, maxName)
		}
	}
	n.Gossip, n.Full, n.Gaps, n.Dead, n.Silent = "", nil, nil, false, 0
	known, err := t.entered(ctx, n.Incarnation)
	if err != nil {
		return nil, err
	}
	if !known {
		all, err := t.c.Nodes(ctx)
		if err != nil {
			return nil, err
		}
		own := 0
		for _, o := range all {
			if _, err := ownNode(of, o.Incarnation); err == nil {
				own++
			}
		}
		if own >= schedule.MaxBound {
			return nil, fmt.Errorf("node %s: %w: tenant %s has %d nodes, as many as it may", n.Incarnation, run.ErrBusy, of, own)
		}
	}
	_, err = t.c.putNode(ctx, n)
	return &nats.Msg{}, err
}

// entered reports whether a node has an entry.
func (t *tenantStore) entered(ctx context.Context, incarnation string) (bool, error) {
	m, err := t.c.Messages.Last(ctx, "KV_"+streams.BucketNode, streams.KeySubject(streams.BucketNode, incarnation))
	if errors.Is(err, conn.ErrNoMessage) {
		return false, nil
	}
	return err == nil && m.Header.Get("KV-Operation") == "", err
}

// offer offers workflows to the tenant, and removes the earlier offers of its nodes unless
// another one of them is alive, which may have them.
func (t *tenantStore) offer(ctx context.Context, of session.Tenant, body []byte) (*nats.Msg, error) {
	var o offer
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, fmt.Errorf("offer: %w: %w", run.ErrMalformed, err)
	}
	pool := messages.BoundPool(of)
	names := map[string]bool{}
	for _, w := range o.Workflows {
		data, err := messages.Encode(w)
		if err == nil && len(data) > maxOffer {
			err = fmt.Errorf("workflow %s on offer has %d bytes, at most %d are kept: %w", w.Name, len(data), maxOffer, session.ErrTooLarge)
		}
		if err != nil {
			return nil, err
		}
		names[w.Name] = true
	}
	all, err := t.c.Dispatch.Registry.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	var gone []string
	for _, w := range all {
		if w.Pool == pool && !names[w.Name] {
			gone = append(gone, w.Name)
		}
	}
	nodes, err := t.c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(nodes, func(n messages.Node) bool { return slices.Contains(n.Pools, pool) }) {
		if len(names)+len(gone) > maxOffered {
			return nil, fmt.Errorf("workflows of tenant %s: %w: its nodes may offer %d", of, run.ErrBusy, maxOffered)
		}
		gone = nil
	}
	if len(names) > maxOffered {
		return nil, fmt.Errorf("workflows of tenant %s: %w: its nodes may offer %d", of, run.ErrBusy, maxOffered)
	}
	return &nats.Msg{}, errors.Join(t.c.Dispatch.Registry.Withdraw(ctx, pool, gone...), t.c.Dispatch.Registry.Register(ctx, pool, o.Workflows))
}

// named looks up workflows and tools by their names.
func (t *tenantStore) named(ctx context.Context, of session.Tenant, body []byte) (*nats.Msg, error) {
	var n named
	if err := json.Unmarshal(body, &n); err != nil {
		return nil, fmt.Errorf("names: %w: %w", run.ErrMalformed, err)
	}
	if most := max(len(n.Tools), len(n.Workflows)); most > wire.MaxTasks {
		return nil, fmt.Errorf("%d names, at most %d are looked for: %w", most, wire.MaxTasks, session.ErrTooLarge)
	}
	var out found
	var err error
	if len(n.Tools) > 0 {
		out.Tools, err = t.c.Tools(ctx, of, n.Tools...)
		out.Tools = slices.DeleteFunc(out.Tools, func(v messages.Tool) bool { return !slices.Contains(n.Tools, v.Name) })
	}
	if err == nil && len(n.Workflows) > 0 {
		out.Workflows, err = t.c.Dispatch.Registry.Workflows(ctx, n.Workflows...)
		out.Workflows = slices.DeleteFunc(dispatch.OfferedTo(out.Workflows, of), func(w messages.Workflow) bool { return !slices.Contains(n.Workflows, w.Name) })
	}
	if err != nil {
		return nil, err
	}
	return encoded(out)
}
