package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// ServeNode answers requests to this incarnation: handle returns the answer to a verb,
// which is sent as JSON.
func (c *Conn) ServeNode(ctx context.Context, incarnation, verb string, handle func(ctx context.Context, body []byte) (any, error)) (*conn.Service, error) {
	if err := session.ValidID("incarnation", incarnation); err != nil {
		return nil, err
	}
	return c.Conn.Serve(ctx, messages.NodeSubject(incarnation, verb), "", func(ctx context.Context, m *nats.Msg) any {
		v, err := handle(ctx, m.Data)
		if err != nil {
			return wire.ErrorOf(err)
		}
		return v
	})
}

// drainOf drains a node for a user of a tenant. The error is session.ErrTenant if the node
// belongs to another tenant or is shared, and run.ErrNotSupported if the credentials do not
// authenticate the user.
func (c *controls) drainOf(ctx context.Context, of wire.Controlled) error {
	if of.User == messages.UserAnonymous {
		return fmt.Errorf("drain node %s: %w for clients without credentials; use those of a user with the role operate, or drain it where the store is", of.ID, run.ErrNotSupported)
	}
	bound, ok := messages.BoundTo(of.ID)
	if ok && bound != of.Tenant {
		return requests.NoNode(of.ID)
	}
	if !ok {
		others, err := c.othersStore(ctx, of.Tenant)
		switch {
		case err != nil:
			return err
		case others:
			return fmt.Errorf("drain node %s: %w: it works for all tenants, and others than %s have sessions here; ask an operator of the fleet, whose credentials have the role operator",
				of.ID, session.ErrTenant, of.Tenant)
		}
	}
	err := c.all.Requests.Drain(ctx, of.ID)
	if errors.Is(err, conn.ErrNoAnswer) {
		return requests.NoNode(of.ID)
	}
	return err
}

// replicaLag is the maximum lag of a replica behind the leader of its stream, when both are
// read, before the commits that it lacks count as another tenant's.
const replicaLag = 250 * time.Millisecond

// othersStore reports whether the event streams hold a commit of any other tenant.
func (c *controls) othersStore(ctx context.Context, t session.Tenant) (bool, error) {
	for p := range c.all.Streams.Partitions() {
		stream := messages.EventStream(c.all.Streams.Generation(), p)
		info, err := c.all.Messages.StreamInfo(ctx, stream)
		if err != nil {
			return false, fmt.Errorf("nats/api: look at stream %s: %w", stream, conn.StreamError(err))
		}
		own := strings.TrimSuffix(info.Config.Subjects[0], ">") + string(t) + ".>"
		count, err := c.all.Streams.Capacity.Count(ctx, stream, own)
		if err == nil && count < info.State.Msgs {
			conn.Pause(ctx, replicaLag)
			count, err = c.all.Streams.Capacity.Count(ctx, stream, own)
		}
		if err != nil || count < info.State.Msgs {
			return err == nil, err
		}
	}
	return false, nil
}

// replay calls this node's Queries.Replay.
func (a answerer) replay(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	if err := oneRun(q); err != nil {
		return nil, err
	}
	var out messages.Replay
	err := a.c.controls.ofBegun(ctx, t, q.Run, func() error {
		home, err := a.c.Logs.RunSession(ctx, t, q.Run)
		switch {
		case err != nil:
			return err
		case a.Queries.Replay == nil:
			return errors.Join(run.ErrNotSupported, errors.New("this node cannot replay"))
		}
		out, err = a.Queries.Replay(ctx, home, q.Run)
		return err
	})
	return out, err
}
