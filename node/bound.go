package node

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// installation is a node's access to storage and to the fleet: the streams or, for a
// node that is bound to a tenant, the services of the nodes for all tenants.
type installation struct {
	log       commitlog.Log
	blobs     func(session.Tenant) blob.Store
	nodes     func(context.Context) ([]messages.Node, error)
	workflows func(ctx context.Context, named ...string) ([]messages.Workflow, error)
	tools     func(ctx context.Context, t session.Tenant, named ...string) ([]messages.Tool, error)
	deliver   func(ctx context.Context, incarnation string, w journal.Work) (journal.Answer, error)
	announce  func(ctx context.Context, incarnation string, about func() messages.Node, entered func()) error
	answering func(context.Context) error
}

// install sets up the installation of a node for all tenants.
func (l *link) install() {
	c := l.conn
	l.home = installation{
		log: c.Logs.Log(), blobs: c.Logs.Blobs, nodes: c.Nodes, workflows: c.Dispatch.Registry.Workflows, tools: c.Tools,
		deliver: c.Dispatch.Delivery.Deliver, announce: c.Announce, answering: c.Streams.Answering,
	}
}

// bind connects with credentials that bind the node to a tenant.
func (l *link) bind(ctx context.Context, t session.Tenant, o *streams.Options) error {
	incarnation, err := messages.BoundIncarnation(t, rand.Text()[:12])
	switch {
	case err != nil:
		return fmt.Errorf("node: %w", err)
	case l.o.Fleet.Gossip != nil:
		return fmt.Errorf("node: these credentials bind the node to tenant %s, and a member of the gossip reaches all nodes: leave -gossip and its key out: %w", t, run.ErrNotSupported)
	case l.o.Idle:
		return fmt.Errorf("node: these credentials bind the node to tenant %s, so that it cannot answer for all: %w; an idle node needs the role %s", t, run.ErrNotSupported, permission.RoleNode)
	}
	l.incarnation = incarnation
	if l.health != nil {
		l.health.named(incarnation)
	}
	if l.o.Fleet.Pool == "" {
		l.o.Fleet.Pool = messages.BoundPool(t)
	}
	if of, bound := messages.PoolOf(l.o.Fleet.Pool); bound && of != t {
		return foreignPool(l.o.Fleet.Pool, of)
	}
	o.Name, o.Client = "rath "+incarnation, true
	if l.conn, err = api.Connect(ctx, o); err != nil {
		return err
	}
	user, err := l.conn.Conn.User(ctx, t)
	if err == nil {
		err = l.conn.Conn.Require(ctx, permission.RoleHost, permission.Place{Tenant: t, User: user})
	}
	if err == nil {
		l.bound, err = l.conn.Bind(ctx, t)
	}
	if err != nil {
		return err
	}
	b := l.bound
	l.home = installation{
		log: b.Log(), blobs: b.Blobs, nodes: b.Nodes, workflows: b.Workflows, tools: b.Tools,
		deliver: b.Deliver, announce: b.Announce, answering: b.Answering,
	}
	l.o.NATS.Level = b.Level
	l.o.Logger.Info("these credentials bind the node to a tenant", "tenant", string(t), "pool", l.o.Fleet.Pool)
	return nil
}

// foreignPool rejects a pool that is reserved for the nodes of a tenant.
func foreignPool(pool string, of session.Tenant) error {
	return fmt.Errorf("node: pool %s is of the nodes that are bound to tenant %s: %w; name another one with -pool (RATH_POOL)", pool, of, run.ErrNotSupported)
}

// visible reports whether a node may be asked about a tenant's runs from here.
func visible(incarnation string, t session.Tenant) bool {
	of, bound := messages.BoundTo(incarnation)
	return !bound || of == t
}
