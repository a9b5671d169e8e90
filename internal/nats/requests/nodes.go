package requests

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// AskNode sends a request to an incarnation and returns the body of the answer, or its
// error. It needs the rights of a node. The error is ErrNoAnswer if no such incarnation is
// alive, or if it does not support the verb.
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

// DrainFor is [Requests.Drain] within the rights of these credentials: for a user of a
// tenant, any node forwards the request, see drainOf. The error is session.ErrNotFound if
// no such incarnation is alive.
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
			return fmt.Errorf("%w: %w", NoNode(incarnation), err)
		}
		return err
	}
	user, err := c.user(ctx, t)
	if err != nil {
		return err
	}
	_, err = answered(ctx, func(ctx context.Context) ([]byte, error) {
		return c.conn.Ask(ctx, messages.DrainSubject(t, user, incarnation), nil)
	})
	return err
}

// Drain asks an incarnation to accept no more work, to return its runs and to end, and
// returns once it has begun. It needs the rights of a node.
func (c *Requests) Drain(ctx context.Context, incarnation string) error {
	if _, err := c.AskNode(ctx, incarnation, messages.NodeDrain, struct{}{}); err != nil {
		return fmt.Errorf("drain node %s: %w", incarnation, err)
	}
	return nil
}

func NoNode(incarnation string) error {
	return fmt.Errorf("node %s: %w: no such incarnation lives", incarnation, session.ErrNotFound)
}
