package conn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// slots bounds the requests that one service answers concurrently; further requests
	// are answered as busy. A request takes one slot, and one more for each slotBytes of
	// its body: 256 large ones would fill the memory, and leave the reader of the
	// connection so little processor that the server cuts it off.
	slots     = 256
	slotBytes = 64 << 10
	// tenantShare bounds a tenant's slots to a multiple of the free ones: three quarters
	// of all if it is alone, and some stay free however many tenants send requests.
	tenantShare = 3
	// handleFor bounds the answering of one request.
	handleFor = 30 * time.Second
	// leftAfter is how long Stop waits for requests whose context has ended.
	leftAfter = 5 * time.Second
)

// Service answers requests until it is stopped.
type Service struct {
	// Cancel cancels the requests in progress.
	Cancel context.CancelFunc
	// Limit bounds the answering of one request.
	Limit time.Duration
	// Close ends the subscriptions.
	Close func() error

	ctx  context.Context
	wg   sync.WaitGroup
	log  *slog.Logger
	once sync.Once
	err  error

	mu       sync.Mutex
	requests int                    // that are being answered
	taken    int                    // slots
	held     map[session.Tenant]int // those of a tenant
}

// NewService returns a service. The caller makes its subscriptions, and ends them in Close.
func (c *Conn) NewService(ctx context.Context) *Service {
	s := &Service{log: c.Logger, held: map[session.Tenant]int{}, Limit: handleFor}
	s.ctx, s.Cancel = context.WithCancel(ctx)
	return s
}

// Stop accepts no more requests, and returns when the accepted ones are answered. A caller
// that ends the context of the service has them rejected. Stop returns an error if some
// requests ignore their context and are abandoned. It may be called more than once.
func (s *Service) Stop() error {
	s.once.Do(func() {
		s.err = errors.Join(s.Close(), s.answered())
		s.Cancel()
	})
	return s.err
}

// answered returns when all accepted requests are answered, or are long overdue.
func (s *Service) answered() error {
	done := make(chan struct{})
	go func() { // it outlives this call only with the abandoned requests
		s.wg.Wait()
		close(done)
	}()
	most := time.NewTimer(s.Limit)
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
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Errorf("nats/conn: end a service: %d requests are being answered %v after they had to end: their code does not heed its context", s.requests, leftAfter)
	}
}

// Go answers m in the background. It calls refuse instead, with run.ErrBusy, when too many
// requests are in progress, in all or of the tenant, and if handle panics: one request must
// not end the process that answers all others.
func (s *Service) Go(m Request, handle func(ctx context.Context), refuse func(error)) {
	of, n := m.tenant(), 1+m.Size/slotBytes
	if err := s.take(of, n); err != nil {
		refuse(err)
		return
	}
	s.wg.Go(func() {
		defer s.give(of, n)
		defer func() {
			if v := recover(); v != nil {
				s.log.Error("answering a request panicked", "panic", v, "stack", string(debug.Stack()))
				refuse(fmt.Errorf("nats/conn: answering the request panicked: %v; the node's log has the stack", v))
			}
		}()
		ctx, cancel := context.WithTimeout(s.ctx, s.Limit)
		defer cancel()
		handle(ctx)
	})
}

// Request holds the size of a request, which determines its cost, and the subject, which
// names its tenant.
type Request struct {
	Subject string
	Size    int // of the body
}

// RequestOf returns the Request of a message.
func RequestOf(m *nats.Msg) Request { return Request{m.Subject, len(m.Data)} }

// tenant returns the tenant whose clients or nodes sent the request; "" for requests
// between nodes for all tenants and relays, and for calls of a tool, whose program has one
// tenant.
func (r Request) tenant() session.Tenant {
	for _, prefix := range []string{messages.ControlPrefix, messages.QueryPrefix, messages.StorePrefix} {
		if rest, ok := strings.CutPrefix(r.Subject, prefix); ok {
			of, _, _ := strings.Cut(rest, ".")
			return session.Tenant(of)
		}
	}
	return ""
}

// take takes n slots for a request, or returns run.ErrBusy.
func (s *Service) take(of session.Tenant, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := slots - s.taken - n
	switch {
	case free < 0:
		return fmt.Errorf("%w: %d requests are being answered; retry in a second", run.ErrBusy, s.requests)
	case of != "" && s.held[of]+n > tenantShare*free:
		return fmt.Errorf("%w: as many requests of tenant %s are being answered as may beside those of others; retry in a second", run.ErrBusy, of)
	}
	s.requests++
	s.taken += n
	s.held[of] += n
	return nil
}

// give releases the slots that take took.
func (s *Service) give(of session.Tenant, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests--
	s.taken -= n
	if s.held[of] -= n; s.held[of] == 0 {
		delete(s.held, of)
	}
}

// Serve answers the requests of a subject, one member of a queue each.
func (c *Conn) Serve(ctx context.Context, subject, queue string, handle func(ctx context.Context, m *nats.Msg) any) (*Service, error) {
	s := c.NewService(ctx)
	respond := func(m *nats.Msg, v any) {
		data, err := messages.Encode(v)
		if err == nil {
			err = m.Respond(data)
		}
		if err != nil {
			c.Logger.Warn("a request was not answered", "subject", m.Subject, "err", err)
		}
	}
	take := func(m *nats.Msg) {
		if m.Reply == "" {
			return // no caller waits: a publish by mistake
		}
		s.Go(RequestOf(m), func(ctx context.Context) { respond(m, handle(ctx, m)) }, func(err error) { respond(m, wire.AnswerOf(err)) })
	}
	var sub *nats.Subscription
	var err error
	if queue == "" {
		sub, err = c.NC.Subscribe(subject, take)
	} else {
		sub, err = c.NC.QueueSubscribe(subject, queue, take)
	}
	return s.Begun(ctx, c, subject, sub, err)
}

// Begun returns the service once its subscription is in effect, or the subscription's
// error. It ends a subscription that is not in effect, which would receive requests after a
// reconnect.
func (s *Service) Begun(ctx context.Context, c *Conn, subject string, sub *nats.Subscription, err error) (*Service, error) {
	if err == nil {
		if err = c.InEffect(ctx, subject); err != nil {
			_ = sub.Unsubscribe() // fails only when the connection has ended
		}
	}
	if err != nil {
		s.Cancel()
		return nil, fmt.Errorf("nats/conn: answer %s: %w", subject, err)
	}
	s.Close = func() error { return c.drainSubscription(sub) }
	return s, nil
}

// Flush returns when the server has received everything sent over the current connection:
// subscriptions are in effect. Messages published before a reconnect may be lost, see Tell.
// Flush retries.
func (c *Conn) Flush(ctx context.Context) error {
	_, err := Retry(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.flush(ctx) })
	return err
}

func (c *Conn) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	err := c.NC.FlushWithContext(ctx)
	if errors.Is(err, nats.ErrConnectionClosed) && !c.NC.IsClosed() {
		// Its answer was lost with a connection that is being restored, with the
		// subscriptions.
		return ErrCut
	}
	return err
}

// Tell publishes a message that no stream stores, with retries, and returns when the server
// has it. Subscribers may get it more than once.
func (c *Conn) Tell(ctx context.Context, subject string, data []byte) error {
	_, err := Retry(ctx, func(ctx context.Context) (struct{}, error) {
		before := c.NC.Stats().Reconnects
		err := c.NC.Publish(subject, data)
		if err == nil {
			err = c.flush(ctx)
		}
		if err == nil && c.NC.Stats().Reconnects != before {
			err = ErrCut // messages sent before the reconnect may be lost
		}
		return struct{}{}, err
	})
	return err
}

// Handled returns when the subscriptions have processed the messages that the server sent
// before the last one was ended. A service of package micro ends its own subscriptions
// without waiting for that, and would answer the last requests with an error.
func (c *Conn) Handled() error {
	if !c.NC.IsConnected() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.o.DrainTimeout)
	defer cancel()
	if err := c.Flush(ctx); err != nil {
		return fmt.Errorf("nats/conn: end a service: %w", err)
	}
	done := make(chan struct{})
	if err := c.NC.Barrier(func() { close(done) }); err != nil {
		return fmt.Errorf("nats/conn: end a service: %w", err)
	}
	t := time.NewTimer(c.o.DrainTimeout)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-t.C:
		return fmt.Errorf("nats/conn: end a service: requests are not taken after %v", c.o.DrainTimeout)
	}
}

// drainSubscription ends a subscription after the messages it has received.
func (c *Conn) drainSubscription(sub *nats.Subscription) error {
	if !c.NC.IsConnected() {
		_ = sub.Unsubscribe() // else it is restored with the connection
		return nil
	}
	closed := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(closed) })
	if err := sub.Drain(); err != nil {
		return fmt.Errorf("nats/conn: drain %s: %w", sub.Subject, err)
	}
	t := time.NewTimer(c.o.DrainTimeout)
	defer t.Stop()
	select {
	case <-closed:
		return nil
	case <-t.C:
		return fmt.Errorf("nats/conn: drain %s: not done after %v", sub.Subject, c.o.DrainTimeout)
	}
}

// InEffect returns when the server has accepted a subscription, or an error if it was
// rejected.
func (c *Conn) InEffect(ctx context.Context, subject string) error {
	if err := c.Flush(ctx); err != nil {
		return err
	}
	// The server sends a rejection before it answers the flush.
	e := violated(c.NC.LastError())
	if e != nil && e.Missing[0].Op == permission.OpSubscribe && e.Subject == subject {
		return c.causeOf(ctx, e)
	}
	return nil
}
