package natsbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

const (
	// handleAtOnce bounds the requests of one service that are answered at the
	// same time; over it they are answered as busy.
	handleAtOnce = 256
	// handleFor bounds the answering of one request.
	handleFor = 30 * time.Second
	// leftAfter is how long Stop waits for requests whose context has ended.
	leftAfter = 5 * time.Second
)

// Service answers requests until it is stopped.
type Service struct {
	ctx    context.Context
	cancel context.CancelFunc
	busy   chan struct{}
	limit  time.Duration // for answering one request
	wg     sync.WaitGroup
	close  func() error // ends the subscriptions
	log    *slog.Logger
	once   sync.Once
	err    error
}

func (c *Conn) newService(ctx context.Context) *Service {
	s := &Service{log: c.o.Logger, busy: make(chan struct{}, handleAtOnce), limit: handleFor}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// Stop takes no more requests, and returns when those that were taken are
// answered: whoever ends the context that the service was begun with has them
// refused. The error says if some heed no context and are left behind. It may be
// called more than once.
func (s *Service) Stop() error {
	s.once.Do(func() {
		s.err = errors.Join(s.close(), s.answered())
		s.cancel()
	})
	return s.err
}

// answered returns when all that was taken is answered, or should long have been.
func (s *Service) answered() error {
	done := make(chan struct{})
	go func() { // it outlives this call only with what it waits for
		s.wg.Wait()
		close(done)
	}()
	most := time.NewTimer(s.limit)
	defer most.Stop()
	select {
	case <-done:
		return nil
	case <-s.ctx.Done():
	case <-most.C:
	}
	left := time.NewTimer(leftAfter)
	defer left.Stop()
	select {
	case <-done:
		return nil
	case <-left.C:
		return fmt.Errorf("natsbus: end a service: %d requests are being answered %v after they had to end: their code does not heed its context", len(s.busy), leftAfter)
	}
}

// goes answers one request in the background. refuse is called instead with
// run.ErrBusy when too many are being answered, and if answering it panics: what one
// request does must not end the process that answers all others.
func (s *Service) goes(handle func(ctx context.Context), refuse func(error)) {
	select {
	case s.busy <- struct{}{}:
	default:
		refuse(fmt.Errorf("%w: %d requests are being answered; retry in a second", run.ErrBusy, handleAtOnce))
		return
	}
	s.wg.Go(func() {
		defer func() { <-s.busy }()
		defer func() {
			if v := recover(); v != nil {
				s.log.Error("answering a request panicked", "panic", v, "stack", string(debug.Stack()))
				refuse(fmt.Errorf("natsbus: answering the request panicked: %v; the node's log has the stack", v))
			}
		}()
		ctx, cancel := context.WithTimeout(s.ctx, s.limit)
		defer cancel()
		handle(ctx)
	})
}

// serve answers the requests of a subject, one member of a queue each.
func (c *Conn) serve(ctx context.Context, subject, queue string, handle func(ctx context.Context, m *nats.Msg) any) (*Service, error) {
	s := c.newService(ctx)
	respond := func(m *nats.Msg, v any) {
		data, err := messages.Encode(v)
		if err == nil {
			err = m.Respond(data)
		}
		if err != nil {
			c.o.Logger.Warn("a request was not answered", "subject", m.Subject, "err", err)
		}
	}
	take := func(m *nats.Msg) {
		if m.Reply == "" {
			return // nobody waits: a publish by mistake
		}
		s.goes(func(ctx context.Context) { respond(m, handle(ctx, m)) }, func(err error) { respond(m, messages.AnswerOf(err)) })
	}
	var sub *nats.Subscription
	var err error
	if queue == "" {
		sub, err = c.nc.Subscribe(subject, take)
	} else {
		sub, err = c.nc.QueueSubscribe(subject, queue, take)
	}
	return s.begun(ctx, c, subject, sub, err)
}

// begun returns the service once its subscription, or the error of that, is in
// effect. One that is not is ended: it would take requests after a reconnect.
func (s *Service) begun(ctx context.Context, c *Conn, subject string, sub *nats.Subscription, err error) (*Service, error) {
	if err == nil {
		if err = c.inEffect(ctx, subject); err != nil {
			_ = sub.Unsubscribe() // fails only when the connection has ended
		}
	}
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("natsbus: answer %s: %w", subject, err)
	}
	s.close = func() error { return c.drainSubscription(sub) }
	return s, nil
}

// flush returns when the server has everything that was sent: subscriptions
// are in effect. It is patient.
func (c *Conn) flush(ctx context.Context) error {
	_, err := retry(ctx, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		err := c.nc.FlushWithContext(ctx)
		if errors.Is(err, nats.ErrConnectionClosed) && !c.nc.IsClosed() {
			// Its answer was lost with a connection that is being made again, with
			// the subscriptions.
			err = errCut
		}
		return struct{}{}, err
	})
	return err
}

// heard returns when the subscriptions have taken what the server had sent them
// before the last one was ended. A service of package micro ends its own ones
// without waiting for that, and would answer the last requests with an error.
func (c *Conn) heard() error {
	if !c.nc.IsConnected() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.o.DrainTimeout)
	defer cancel()
	if err := c.flush(ctx); err != nil {
		return fmt.Errorf("natsbus: end a service: %w", err)
	}
	done := make(chan struct{})
	if err := c.nc.Barrier(func() { close(done) }); err != nil {
		return fmt.Errorf("natsbus: end a service: %w", err)
	}
	t := time.NewTimer(c.o.DrainTimeout)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-t.C:
		return fmt.Errorf("natsbus: end a service: requests are not taken after %v", c.o.DrainTimeout)
	}
}

// drainSubscription ends a subscription after what it has received.
func (c *Conn) drainSubscription(sub *nats.Subscription) error {
	if !c.nc.IsConnected() {
		_ = sub.Unsubscribe() // else it is restored with the connection
		return nil
	}
	closed := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(closed) })
	if err := sub.Drain(); err != nil {
		return fmt.Errorf("natsbus: drain %s: %w", sub.Subject, err)
	}
	t := time.NewTimer(c.o.DrainTimeout)
	defer t.Stop()
	select {
	case <-closed:
		return nil
	case <-t.C:
		return fmt.Errorf("natsbus: drain %s: not done after %v", sub.Subject, c.o.DrainTimeout)
	}
}
