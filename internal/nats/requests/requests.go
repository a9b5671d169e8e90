package requests

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// askElse is how long a request waits before it is also sent to another node; the pause
	// before the next one is longer. A frozen node receives its share of the requests until
	// its connection is given up. askMost bounds that.
	askElse = 300 * time.Millisecond
	askMost = 9
	// controlElse is the same pause for requests that are answered after a commit, and
	// longestElse the longest pause for all.
	controlElse = time.Second
	longestElse = 3 * time.Second
)

// Requests are the requests of clients over one connection. It is safe for concurrent use.
type Requests struct {
	conn *conn.Conn
	as   string // the user that the requests name; "" is the user of the connection
	via  string // the gateway that vouches for as
}

// New returns the requests over a connection.
func New(c *conn.Conn) *Requests { return &Requests{conn: c} }

// As returns the requests of a user over the same connection, whose credentials may name
// any user. via names the gateway, and is a part of the user's claim of identity.
func (c *Requests) As(user, via string) *Requests { return &Requests{c.conn, user, via} }

// claimOf returns the claim of identity that a request carries.
func claimOf(by, via string) string {
	switch {
	case via == "":
		return by
	case by == "":
		return "via " + via
	}
	return by + " via " + via
}

// user returns the user that requests for a tenant name.
func (c *Requests) user(ctx context.Context, t session.Tenant) (string, error) {
	if c.as != "" {
		return c.as, messages.ValidUser(c.as)
	}
	return c.conn.User(ctx, t)
}

// question sends a request that may be answered twice, and returns the first answer. It
// repeats the request after a first pause, then after longer ones.
func (c *Requests) question(ctx context.Context, subject string, header nats.Header, data []byte, pause time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, conn.AskTimeout)
	type answer struct {
		data []byte
		err  error
	}
	answers := make(chan answer, askMost)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	wait := time.NewTimer(0)
	defer wait.Stop()
	for asked, next := 0, pause; ; {
		select {
		case a := <-answers:
			return a.data, a.err
		case <-wait.C:
			asking.Go(func() {
				d, err := c.conn.AskWith(ctx, subject, header, data)
				answers <- answer{d, err}
			})
			if asked++; asked < askMost {
				wait.Reset(next)
				next = min(2*next, longestElse)
			}
		}
	}
}

// Submit publishes a task's body, from the user of the connection, and returns once the
// stream holds it. again reports that the stream had a message with this mark before, in
// the last 20 seconds, and that it has not stored the body; a task without a mark is always
// stored. A repetition with the same body is harmless, so the request is repeated
// to a silent server: a server whose disk has just become full answers no earlier request.
// ErrFull means that too many tasks wait or the disk is full, and the task was not stored.
func (c *Requests) Submit(ctx context.Context, t session.Tenant, workflow, mark string, body []byte) (again bool, err error) {
	user, err := c.user(ctx, t)
	if err != nil {
		return false, err
	}
	header := nats.Header{}
	if mark != "" {
		header[nats.MsgIdHdr] = []string{string(t) + "." + mark}
	}
	if c.via != "" {
		header[messages.HeaderSays] = []string{claimOf("", c.via)}
	}
	data, err := c.question(ctx, messages.TaskSubject(t, user, workflow), header, body, longestElse)
	if err != nil {
		return false, err
	}
	var ack conn.PubAck
	if err := json.Unmarshal(data, &ack); err != nil {
		return false, fmt.Errorf("nats/requests: submit: acknowledgement: %w", err)
	}
	if ack.Error == nil && ack.Stream == messages.StreamTasks {
		return ack.Duplicate, nil
	}
	return false, submitError(&ack, len(body))
}

// submitError returns the error of an acknowledgement of a task that was not stored.
func submitError(ack *conn.PubAck, size int) error {
	switch {
	case ack.Error == nil:
		return fmt.Errorf("nats/requests: submit: the answer is from %q, not from the stream of tasks", ack.Stream)
	case ack.Error.ErrCode == conn.CodeStoreFailed, ack.Error.ErrCode == conn.CodeTooManyPending:
		return fmt.Errorf("%w: stream %s, where tasks wait for nodes: %s; try again later: %w", run.ErrBusy, messages.StreamTasks, ack.Error.Description, conn.ErrFull)
	case ack.Error.ErrCode == conn.CodeNoResources:
		return conn.ErrDiskFull
	case ack.Error.ErrCode == conn.CodeTooLarge:
		return fmt.Errorf("nats/requests: submit: %d bytes, the limit is %d: %w; put large data into a workspace", size, messages.MaxTask, session.ErrTooLarge)
	}
	return fmt.Errorf("nats/requests: submit: the server answers %s (%d)", ack.Error.Description, ack.Error.ErrCode)
}

// Query sends a query and returns the body of the answer, or its error. More than one node
// may be asked, when none answers soon.
func (c *Requests) Query(ctx context.Context, t session.Tenant, verb string, q any) ([]byte, error) {
	body, err := messages.Encode(q)
	if err != nil {
		return nil, err
	}
	var data []byte
	err = elsewhere(ctx, func(ctx context.Context) error {
		data, err = c.question(ctx, messages.QuerySubject(t, verb), nil, body, askElse)
		if err == nil {
			err = wire.ReplyError(data)
		}
		return err
	})
	return data, err
}

// elsewhere calls put, and once more if it was rejected: a node that stops rejects its
// unanswered requests, and another node may answer. Both calls together take as long as one
// may.
func elsewhere(ctx context.Context, put func(ctx context.Context) error) error {
	asking, cancel := context.WithTimeout(ctx, conn.AskTimeout)
	defer cancel()
	err := put(asking)
	if !errors.Is(err, session.ErrUnavailable) || asking.Err() != nil {
		return err
	}
	again := put(asking)
	if errors.Is(again, conn.ErrNoAnswer) || again != nil && asking.Err() != nil && ctx.Err() == nil {
		return err // no other answer comes
	}
	return again
}

// Control sends a control request about a run, and returns once it is committed. The note
// holds the result beyond success. Each request has an id, drawn if there is none. With it
// more than one node may be asked when none answers soon: the request is applied once, and
// all get the same answer.
func (c *Requests) Control(ctx context.Context, t session.Tenant, id run.ID, verb string, b messages.Control) (note string, err error) {
	if b.ID == "" {
		b.ID = rand.Text()
	}
	b.By = claimOf(b.By, c.via)
	body, err := messages.Encode(b)
	if err != nil {
		return "", err
	}
	user, err := c.user(ctx, t)
	if err != nil {
		return "", err
	}
	return answered(ctx, func(ctx context.Context) ([]byte, error) {
		return c.question(ctx, messages.ControlSubject(t, user, id, verb), nil, body, controlElse)
	})
}

// answered sends a request with ask, to another node too if needed, and reads the answer.
func answered(ctx context.Context, ask func(ctx context.Context) ([]byte, error)) (note string, err error) {
	err = elsewhere(ctx, func(ctx context.Context) error {
		data, err := ask(ctx)
		if err != nil {
			return err
		}
		a, err := wire.DecodeAnswer(data)
		if err != nil {
			return err
		}
		note = a.Note
		return a.Err()
	})
	return note, err
}

// Watch is a subscription to live messages.
type Watch struct {
	requests *Requests
	sub      *nats.Subscription
	link     context.Context
}

// Live is a message of a Watch. If Gap is set it is no message: messages may have been
// lost, because the connection was lost or the reader was too slow.
type Live struct {
	Subject string
	Data    []byte
	Gap     bool
}

// Watch subscribes to a subject, from now on.
func (c *Requests) Watch(ctx context.Context, subject string) (*Watch, error) {
	w := &Watch{requests: c, link: c.conn.Linked()}
	var err error
	if w.sub, err = c.conn.NC.SubscribeSync(subject); err != nil {
		return nil, fmt.Errorf("nats/requests: watch %s: %w", subject, err)
	}
	if err := c.conn.InEffect(ctx, subject); errors.Is(err, conn.ErrDenied) {
		w.Close()
		return nil, fmt.Errorf("nats/requests: watch: %w", err)
	} else if err != nil {
		w.Close()
		return nil, fmt.Errorf("%w: watch %s: %s: %w", conn.ErrUnreachable, subject, c.conn.Servers(), err)
	}
	return w, nil
}

// Next waits for a message until ctx ends.
func (w *Watch) Next(ctx context.Context) (Live, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.link, cancel)()
	m, err := w.sub.NextMsgWithContext(waiting)
	switch {
	case err == nil:
		return Live{Subject: m.Subject, Data: m.Data}, nil
	case errors.Is(err, nats.ErrSlowConsumer):
		return Live{Gap: true}, nil
	case ctx.Err() != nil:
		return Live{}, ctx.Err()
	case w.link.Err() != nil && !w.requests.conn.NC.IsClosed():
		// The subscription is restored with the connection: a client whose next query
		// succeeds has missed no message in between.
		w.link = w.requests.conn.Linked()
		return Live{Gap: true}, nil
	}
	return Live{}, fmt.Errorf("nats/requests: watch %s: %w", w.sub.Subject, err)
}

// Close ends the subscription.
func (w *Watch) Close() { _ = w.sub.Unsubscribe() } // fails only when the connection has ended
