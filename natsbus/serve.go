package natsbus

import (
	"context"
	"fmt"
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
)

// Service answers requests until it is stopped.
type Service struct {
	ctx    context.Context
	cancel context.CancelFunc
	busy   chan struct{}
	limit  time.Duration // for answering one request
	wg     sync.WaitGroup
	close  func() error // ends the subscriptions
	once   sync.Once
	err    error
}

func newService(ctx context.Context) *Service {
	s := &Service{busy: make(chan struct{}, handleAtOnce), limit: handleFor}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// Stop takes no more requests, and returns when those that were taken are
// answered. It may be called more than once.
func (s *Service) Stop() error {
	s.once.Do(func() {
		s.err = s.close()
		s.wg.Wait()
		s.cancel()
	})
	return s.err
}

// goes answers one request in the background; busy is called when too many
// are being answered.
func (s *Service) goes(handle func(ctx context.Context), busy func()) {
	select {
	case s.busy <- struct{}{}:
	default:
		busy()
		return
	}
	s.wg.Go(func() {
		defer func() { <-s.busy }()
		ctx, cancel := context.WithTimeout(s.ctx, s.limit)
		defer cancel()
		handle(ctx)
	})
}

// serve answers the requests of a subject, one member of a queue each.
func (c *Conn) serve(ctx context.Context, subject, queue string, handle func(ctx context.Context, m *nats.Msg) any) (*Service, error) {
	s := newService(ctx)
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
		s.goes(func(ctx context.Context) { respond(m, handle(ctx, m)) }, func() {
			respond(m, messages.AnswerOf(fmt.Errorf("%w: %d requests are being answered; retry in a second", run.ErrBusy, handleAtOnce)))
		})
	}
	var sub *nats.Subscription
	var err error
	if queue == "" {
		sub, err = c.nc.Subscribe(subject, take)
	} else {
		sub, err = c.nc.QueueSubscribe(subject, queue, take)
	}
	if err == nil {
		err = c.inEffect(ctx, subject)
	}
	if err != nil {
		s.cancel()
		return nil, fmt.Errorf("natsbus: answer %s: %w", subject, err)
	}
	s.close = func() error { return c.drainSubscription(sub) }
	return s, nil
}

// flush returns when the server has everything that was sent: subscriptions
// are in effect.
func (c *Conn) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.nc.FlushWithContext(ctx)
}

// heard returns when the subscriptions have taken what the server had sent them
// before the last one was ended. A service of package micro ends its own ones
// without waiting for that, and would answer the last requests with an error.
func (c *Conn) heard() error {
	if !c.nc.IsConnected() {
		return nil
	}
	if err := c.flush(context.Background()); err != nil {
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
