package api

import (
	"context"
	"errors"
	"fmt"

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
	return c.Serve(ctx, messages.NodeSubject(incarnation, verb), "", func(ctx context.Context, m *nats.Msg) any {
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
func (c *Conn) AskNode(ctx context.Context, incarnation, verb string, body any) ([]byte, error) {
	if err := session.ValidID("incarnation", incarnation); err != nil {
		return nil, err
	}
	data, err := messages.Encode(body)
	if err != nil {
		return nil, err
	}
	reply, err := c.Ask(ctx, messages.NodeSubject(incarnation, verb), data)
	if err == nil {
		err = wire.ReplyError(reply)
	}
	return reply, err
}

// Drain asks an incarnation to take no more work, to give its runs back and to
// end, and returns once it has begun to. It takes the rights of a node.
func (c *Conn) Drain(ctx context.Context, incarnation string) error {
	if _, err := c.AskNode(ctx, incarnation, messages.NodeDrain, struct{}{}); err != nil {
		return fmt.Errorf("drain node %s: %w", incarnation, err)
	}
	return nil
}

// replay asks the hook of this node, see Queries.Replay.
func (a answerer) replay(ctx context.Context, t session.Tenant, q wire.Query) (any, error) {
	if err := oneRun(q); err != nil {
		return nil, err
	}
	var out wire.Replay
	err := a.c.ofBegun(ctx, t, q.Run, func() error {
		home, err := a.c.RunSession(ctx, t, q.Run)
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
