package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/platform/workers"
)

const (
	// maxPull bounds the messages of one request.
	maxPull = 64
	// pullFor is how long a request for messages waits. A message that the server sends to
	// a node that froze while it waited is redelivered only after streams.AckWait: pullFor
	// bounds how long a frozen node is sent any. The end of a request also reveals that it
	// was lost, as during an election.
	pullFor = time.Second
	// fullWait is how often a full node checks for a free slot.
	fullWait = 5 * time.Millisecond
	// retryFirst and retryMost bound the delay before a message that could not be handled
	// is redelivered.
	retryFirst = 100 * time.Millisecond
	retryMost  = 5 * time.Second
	// waitFirst is the first delay of a message whose kind has more than enough waiting in
	// logs, of which none begins. streams.WaitMost is the longest, unless very many are
	// rejected: see pace.
	waitFirst = time.Second
	// backlogPause is the minimum time between the redeliveries of two messages that were
	// rejected for want of room in logs. A server sends these before any unsent message, so
	// without a bound on their rate one tenant's messages would keep a node from receiving
	// others.
	backlogPause = 2 * time.Millisecond
)

// jsMsg is a message of a work queue.
type jsMsg = jetstream.Msg

// disposition is the outcome of a handled message.
type disposition uint8

const (
	ack           disposition = iota // a log holds its content, or none ever will
	nakDelayed                       // no node could take it now
	nak                              // this node cannot take it: soon for another one
	nakBacklogged                    // enough of its kind wait, and none of them begins
	nakMoving                        // enough of its kind wait, and some of them begin
)

// puller handles the messages of a work queue, at most most concurrently. A message is
// removed once handle returns ack.
type puller struct {
	c *Dispatch
	streams.PullQueue
	most   int // bound of the messages handled concurrently
	handle func(ctx context.Context, m jsMsg) disposition

	work *workers.Pool
	busy atomic.Int64 // messages in progress

	mu   sync.Mutex
	last jsMsg     // finished and not acknowledged yet
	next time.Time // when the last message rejected for want of room is redelivered
}

// run pulls until ctx ends, and returns when all received messages are handled. It fails at
// once without the stream.
func (p *puller) run(ctx context.Context) error {
	p.work = workers.New()
	defer p.done(nil)
	defer p.work.End()
	var e streams.Lookup
	for wait, ever := conn.NewBackoff(), false; ; {
		consumer, err := p.c.streams.Reconciler.OpenQueue(ctx, &e, p.PullQueue)
		if err == nil {
			ever, e = true, streams.Lookup{}
			err = p.pull(ctx, consumer, &wait)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case !ever && (errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, conn.ErrDenied)):
			return fmt.Errorf("nats/dispatch: pull from stream %s: %w", p.Stream, conn.StreamError(err))
		}
		p.c.conn.Logger.Warn("pulling again", "stream", p.Stream, "consumer", p.Durable, "err", conn.StreamError(err))
		if wait.Sleep(ctx) != nil {
			return nil
		}
	}
}

// pull requests messages until a request fails.
func (p *puller) pull(ctx context.Context, consumer jetstream.Consumer, wait **conn.Backoff) error {
	for ctx.Err() == nil {
		p.done(nil)
		n := min(p.most-int(p.busy.Load()), maxPull)
		if n <= 0 {
			conn.Pause(ctx, fullWait)
			continue
		}
		if err := p.batch(ctx, consumer, n); err != nil {
			return err
		}
		*wait = conn.NewBackoff()
	}
	return ctx.Err()
}

// batch requests n messages and starts to handle those that arrive.
func (p *puller) batch(ctx context.Context, consumer jetstream.Consumer, n int) error {
	asking, cancel := context.WithTimeout(ctx, pullFor)
	defer cancel()
	defer context.AfterFunc(p.c.conn.Linked(), cancel)()
	batch, err := consumer.Fetch(n, jetstream.FetchContext(asking))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		if ctx.Err() != nil {
			_ = m.Nak() // otherwise it is redelivered after streams.AckWait
			continue
		}
		p.start(ctx, m)
	}
	return waited(batch.Error())
}

// waited drops the errors that only report that no more messages arrived in time.
func waited(err error) error {
	for _, none := range []error{context.DeadlineExceeded, context.Canceled, nats.ErrTimeout, jetstream.ErrNoMessages} {
		if errors.Is(err, none) {
			return nil
		}
	}
	return err
}

// start handles a message in the background.
func (p *puller) start(ctx context.Context, m jsMsg) {
	p.busy.Add(1)
	p.work.Run(func() {
		defer p.busy.Add(-1)
		p.one(ctx, m)
	})
}

// one handles a message and sends the outcome to the server. A lost outcome leads to a
// redelivery, which is harmless.
func (p *puller) one(ctx context.Context, m jsMsg) {
	k := keep{p: p, m: m, until: time.Now().Add(streams.HoldMost + streams.AckWait)}
	k.begin()
	handling, cancel := context.WithTimeout(ctx, streams.HoldMost)
	f := p.handle(handling, m)
	cancel()
	k.end()
	switch {
	case f == ack:
		p.done(m)
	case ctx.Err() != nil:
		p.said(m, m.Nak())
	case f == nak:
		p.said(m, m.NakWithDelay(retryFirst))
	case f == nakBacklogged:
		p.said(m, m.NakWithDelay(p.pace(time.Now(), retryDelay(m, waitFirst, streams.WaitMost))))
	case f == nakMoving:
		p.said(m, m.NakWithDelay(p.pace(time.Now(), retryDelay(m, retryFirst, retryMost))))
	default:
		p.said(m, m.NakWithDelay(retryDelay(m, retryFirst, retryMost)))
	}
}

// pace returns the time after which a message rejected for want of room is redelivered: the
// delay, or backlogPause after the previous such message if that is later. New messages are
// handled in between.
func (p *puller) pace(now time.Time, delay time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Messages with the last delay are redelivered in any order: only the excess over the
	// rate queues up.
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(backlogPause)
	return max(delay, p.next.Sub(now))
}

// done acknowledges the previous finished message. It acknowledges m with the next one or,
// if none comes, when the request for messages ends, before m is redelivered. A server
// begins a new file for a stream that becomes empty, and removes the old one: for tasks
// that come one at a time that would happen for each.
func (p *puller) done(m jsMsg) {
	p.mu.Lock()
	m, p.last = p.last, m
	p.mu.Unlock()
	if m != nil {
		p.said(m, m.Ack())
	}
}

// said logs a failure to report the outcome of a message to the servers.
func (p *puller) said(m jsMsg, err error) {
	if err != nil {
		p.c.conn.Logger.Warn("a message will come again though it was handled", "stream", p.Stream, "subject", m.Subject(), "err", err)
	}
}

// keep reports progress on a message while it is handled. After the message's time is over
// it stops, and another node gets the message. It needs no goroutine: most messages are
// handled before the first report is due.
type keep struct {
	p     *puller
	m     jsMsg
	until time.Time

	mu    sync.Mutex // held during a report, so that none is sent after end
	timer *time.Timer
	ended bool
}

func (k *keep) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = time.AfterFunc(streams.AckWait/3, k.say)
}

func (k *keep) say() {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.ended:
	case !time.Now().Before(k.until):
		k.p.c.conn.Logger.Error("a message is left to others, because handling it does not end here", "stream", k.p.Stream, "subject", k.m.Subject())
	default:
		_ = k.m.InProgress()
		k.timer.Reset(streams.AckWait / 3)
	}
}

func (k *keep) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	k.timer.Stop()
}

// retryDelay grows from first to most with each delivery and has a random part.
func retryDelay(m jsMsg, first, most time.Duration) time.Duration {
	delivered := uint64(1)
	if meta, err := m.Metadata(); err == nil {
		delivered = meta.NumDelivered
	}
	d := most
	if n := delivered - min(delivered, 1); n < 16 {
		d = min(first<<n, most)
	}
	return d/2 + rand.N(d)/2
}
