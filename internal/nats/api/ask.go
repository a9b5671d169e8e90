package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// ServeNode answers what is asked of this incarnation itself: each verb by its
// handler, whose answer is sent as JSON.
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

// AskNode asks something of an incarnation and returns the body of the answer,
// or the error that it is. It takes the rights of a node. ErrNoAnswer: no such
// incarnation lives, or it does not know the verb.
func (c *Requests) AskNode(ctx context.Context, incarnation, verb string, body any) ([]byte, error) {
	if err := session.ValidID("incarnation", incarnation); err != nil {
		return nil, err
	}
	data, err := messages.Encode(body)
	if err != nil {
		return nil, err
	}
	reply, err := c.conn.Ask(ctx, messages.NodeSubject(incarnation, verb), data)
	if err == nil {
		err = wire.ReplyError(reply)
	}
	return reply, err
}

// DrainFor is [Requests.Drain] within the rights of these credentials: a user of a tenant
// asks any node to pass it on, see drainOf. session.ErrNotFound: no such incarnation lives.
func (c *Requests) DrainFor(ctx context.Context, t session.Tenant, incarnation string) error {
	if err := session.ValidID("incarnation", incarnation); err != nil {
		return err
	}
	direct, err := conn.MayPublish(ctx, c.conn, messages.NodeSubject(incarnation, messages.NodeDrain))
	if err != nil {
		return err
	}
	if direct {
		err := c.Drain(ctx, incarnation)
		if errors.Is(err, conn.ErrNoAnswer) {
			return fmt.Errorf("%w: %w", noNode(incarnation), err)
		}
		return err
	}
	user, err := c.conn.User(ctx, t)
	if err != nil {
		return err
	}
	_, err = answered(ctx, func(ctx context.Context) ([]byte, error) {
		return c.conn.Ask(ctx, messages.DrainSubject(t, user, incarnation), nil)
	})
	return err
}

// Drain asks an incarnation to take no more work, to give its runs back and to
// end, and returns once it has begun to. It takes the rights of a node.
func (c *Requests) Drain(ctx context.Context, incarnation string) error {
	if _, err := c.AskNode(ctx, incarnation, messages.NodeDrain, struct{}{}); err != nil {
		return fmt.Errorf("drain node %s: %w", incarnation, err)
	}
	return nil
}

// drainOf drains a node for a user of a tenant, unless the node is another tenant's or
// also that of others: session.ErrTenant. run.ErrNotSupported: nothing proves the user.
func (c *controls) drainOf(ctx context.Context, of wire.Controlled) error {
	if of.User == messages.UserAnonymous {
		return fmt.Errorf("drain node %s: %w for clients without credentials; use those of a user with the role operate, or drain it where the store is", of.ID, run.ErrNotSupported)
	}
	bound, ok := messages.BoundTo(of.ID)
	if ok && bound != of.Tenant {
		return noNode(of.ID)
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
		return noNode(of.ID)
	}
	return err
}

func noNode(incarnation string) error {
	return fmt.Errorf("node %s: %w: no such incarnation lives", incarnation, session.ErrNotFound)
}

// replicaLag is how far a replica may be behind the leader of its stream when both are
// asked, before the commits that it lacks count as another tenant's.
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

// replay asks the hook of this node, see Queries.Replay.
func (a answerer) replay(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	if err := oneRun(q); err != nil {
		return nil, err
	}
	var out wire.Replay
	err := a.c.controls.ofBegun(ctx, t, q.Run, func() error {
		home, err := a.c.Logs.RunSession(ctx, t, q.Run)
		switch {
		case err != nil:
			return err
		case a.Queries.Replay == nil:
			return errors.Join(run.ErrNotSupported, errors.New("this node replays nothing"))
		}
		out, err = a.Queries.Replay(ctx, home, q.Run)
		return err
	})
	return out, err
}
