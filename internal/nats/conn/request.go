package conn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/session"
)

const (
	// AskTimeout bounds one request if its context does not. An answer may follow a commit,
	// which may wait for the election of a leader.
	AskTimeout = 30 * time.Second
)

// Request sends one request and waits for its answer, or until the connection is lost.
func (c *Conn) Request(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a := c.beginAttempt(ctx, m.Subject)
	reply, err := c.NC.RequestMsgWithContext(a, m)
	return reply, c.causeOf(ctx, c.endAttempt(a, err))
}

// ErrNoAnswer is returned for a request without a receiver: no node runs that
// answers it.
var ErrNoAnswer = errors.New("nats/conn: no answer")

// Await sends a request and waits for its answer until ctx ends. The error is ErrCut when
// the connection is lost, because the answer does not come any more, and ErrDenied when the
// server rejects the request.
func (c *Conn) Await(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
	asking, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	defer context.AfterFunc(c.link.Load().ctx, func() { cut(ErrCut) })()
	a := c.refusals.enter(subject, func() { cut(ErrDenied) })
	m, err := c.NC.RequestWithContext(asking, subject, data)
	if err != nil && errors.Is(context.Cause(asking), ErrCut) {
		err = ErrCut
	}
	return m, c.refusals.leave(a, err)
}

// Ask sends a request of a client and returns the answer's bytes, or an error with the
// remedy.
func (c *Conn) Ask(ctx context.Context, subject string, data []byte) ([]byte, error) {
	return c.AskWith(ctx, subject, nil, data)
}

// AskWith is Ask with headers.
func (c *Conn) AskWith(ctx context.Context, subject string, header nats.Header, data []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	asking, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	defer context.AfterFunc(c.link.Load().ctx, func() { cut(ErrCut) })()
	a := c.refusals.enter(subject, func() { cut(ErrDenied) })
	m, err := c.NC.RequestMsgWithContext(asking, &nats.Msg{Subject: subject, Header: header, Data: data})
	err = c.causeOf(ctx, c.refusals.leave(a, err))
	switch {
	case err == nil:
		return m.Data, nil
	case errors.Is(err, ErrDenied):
		return nil, fmt.Errorf("request to %s: %w", c.o.where(), err)
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("%w at %s: start a node there, or check that %q is a subject of yours", ErrNoAnswer, c.o.where(), subject)
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, fmt.Errorf("%d bytes for %s: %w; put large data into a workspace", len(data), subject, session.ErrTooLarge)
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrDisconnected):
		return nil, fmt.Errorf("%w: %s: the connection is lost and being restored; try again", ErrUnreachable, c.o.where())
	case errors.Is(context.Cause(asking), ErrCut):
		return nil, fmt.Errorf("%w: %s: the connection was lost before the answer came; ask again, which is harmless", ErrUnreachable, c.o.where())
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer on %s from %s: %w; the node may be overloaded or its disk full, or these credentials may not use the subject", subject, c.o.where(), err)
	}
	return nil, fmt.Errorf("request to %s at %s: %w", subject, c.o.where(), err)
}

// The subjects of the API of JetStream, to which names are added.
const (
	APIStreamInfo     = "$JS.API.STREAM.INFO."
	APIStreamCreate   = "$JS.API.STREAM.CREATE."
	APIStreamUpdate   = "$JS.API.STREAM.UPDATE."
	APIStreamDelete   = "$JS.API.STREAM.DELETE."
	APIStreamNames    = "$JS.API.STREAM.NAMES"
	APIConsumerInfo   = "$JS.API.CONSUMER.INFO."
	APIConsumerCreate = "$JS.API.CONSUMER.CREATE."
	APIConsumerDelete = "$JS.API.CONSUMER.DELETE."
	APIConsumerList   = "$JS.API.CONSUMER.LIST."
)

// Call calls the server through the client library, for at most RequestTimeout. subject is
// the subject that call publishes to, or the first tokens of it.
func Call[T any](ctx context.Context, c *Conn, subject string, call func(context.Context) (T, error)) (T, error) {
	return CallWithin(ctx, c, subject, RequestTimeout, call)
}

func CallWithin[T any](ctx context.Context, c *Conn, subject string, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	calling, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a := c.refusals.enter(subject, cancel)
	v, err := call(calling)
	return v, c.causeOf(ctx, c.refusals.leave(a, err))
}
