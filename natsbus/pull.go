package natsbus

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
)

const (
	// ackWait is how long a node that takes a message may be silent about it
	// before another one gets it. While a node is at it, it says so.
	ackWait = 3 * time.Second
	// holdMost bounds how long a node handles a message, which is longer than any
	// single wait for a log or for another node takes. What it began goes on
	// where it has to; the message comes again, here or elsewhere.
	holdMost = time.Minute
	// maxPull bounds the messages of one request.
	maxPull = 64
	// pullFor is how long a request for messages waits for them. What the
	// server sends to a node that froze while it waited comes again only after
	// ackWait: this bounds for how long after it froze it gets any. A request
	// that was lost, as while servers elect, is noticed by its end.
	pullFor = time.Second
	// fullWait is how often a full node looks for a free slot.
	fullWait = 5 * time.Millisecond
	// retryFirst and retryMost bound the delay before a message that could not
	// be taken comes again.
	retryFirst = 100 * time.Millisecond
	retryMost  = 5 * time.Second
)

// jsMsg is a message of a work queue.
type jsMsg = jetstream.Msg

// fate is what becomes of a message that was handled.
type fate uint8

const (
	done  fate = iota // a log holds what it asks for, or nobody ever will
	later             // nobody could take it now
	other             // this node cannot take it: soon for another one
)

// puller takes the messages of a work queue, as many at once as there are
// slots. A message is removed when handle says that it is done.
type puller struct {
	c *Conn
	pullQueue
	slots  func() int
	handle func(ctx context.Context, m jsMsg) fate
	// lobby, if set, sees to it that tenants take turns when slots are scarce.
	lobby *lobby
	// rank orders the queues of a lobby: of one tenant, the message of the
	// lowest goes first.
	rank int
	// light, if set, reports whether a message takes no slot.
	light func(m jsMsg) bool
	// behind, if set, goes first: this puller asks when that one finds nothing.
	behind *puller

	wg    sync.WaitGroup
	busy  atomic.Int64 // messages that are being handled
	seats atomic.Int64 // those of them that take slots
	eager atomic.Bool  // there is more than there are slots
	// pressed is set while there was no slot since the queue was last seen to
	// be empty.
	pressed atomic.Bool
	watched watched

	// The lobby's, while the queue is pulled from.
	ctx      context.Context
	consumer jetstream.Consumer
	source   jetstream.Stream
	sight    sight
}

// run pulls until ctx ends, and returns when everything that was taken is
// handled. It fails at once without the stream.
func (p *puller) run(ctx context.Context) error {
	defer p.wg.Wait()
	var looks checkup
	var e election
	for wait, ever := newBackoff(), false; ; {
		consumer, err := p.c.openQueue(ctx, &e, p.pullQueue)
		if err == nil {
			ever, e = true, election{}
			err = p.pull(ctx, consumer, &looks, &wait)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case !ever && (errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, ErrDenied)):
			return fmt.Errorf("natsbus: pull from stream %s: %w", p.stream, streamError(err))
		}
		p.c.o.Logger.Warn("pulling again", "stream", p.stream, "consumer", p.durable, "err", err)
		if wait.sleep(ctx) != nil {
			return nil
		}
	}
}

// pull asks for messages until that fails.
func (p *puller) pull(ctx context.Context, consumer jetstream.Consumer, looks *checkup, wait **backoff) error {
	if p.lobby != nil {
		p.lobby.join(ctx, p, consumer)
		defer p.lobby.leave(p)
	}
	for full := false; ctx.Err() == nil; {
		if why, err := looks.look(ctx, p, consumer); err != nil {
			return err
		} else if why != "" {
			if consumer, err = p.c.renewQueue(ctx, p.pullQueue, looks.pulse.made, why); err != nil {
				return err
			}
			*looks = checkup{}
		}
		n := min(p.slots()-int(p.busy.Load()), maxPull)
		if n <= 0 || p.behind != nil && p.behind.eager.Load() {
			full, looks.busy = true, true
			p.pressed.Store(true)
			if p.lobby != nil {
				p.lobby.attend(n <= 0)
			}
			pause(ctx, fullWait)
			continue
		}
		if full && p.lobby != nil {
			looks.busy = true
			begun, may, err := p.lobby.serve(ctx, p)
			switch {
			case err != nil:
				return err
			case begun > 0:
				continue
			case !may:
				pause(ctx, fullWait)
				continue
			}
		}
		took, left, err := p.batch(ctx, consumer, n)
		looks.busy = looks.busy || took > 0
		if err != nil {
			return err
		}
		full, *wait = left, newBackoff()
	}
	return ctx.Err()
}

// batch asks for n messages, starts to handle those that come, and returns how
// many did, and whether any are left for which there was no slot.
func (p *puller) batch(ctx context.Context, consumer jetstream.Consumer, n int) (took int, left bool, err error) {
	asking, cancel := context.WithTimeout(ctx, pullFor)
	defer cancel()
	defer context.AfterFunc(p.c.link.Load().ctx, cancel)()
	// Who goes behind this one must not wait for the end of an idle request.
	fetch := func() (jetstream.MessageBatch, error) {
		return consumer.Fetch(n, jetstream.FetchContext(asking))
	}
	if p.eager.Load() {
		fetch = func() (jetstream.MessageBatch, error) { return consumer.FetchNoWait(n) }
	}
	batch, err := fetch()
	if err != nil {
		return 0, false, err
	}
	if p.lobby != nil {
		left = p.lobby.attend(false)
	}
	for open := true; open; {
		var again <-chan time.Time
		if left {
			again = time.After(fullWait)
		}
		var m jsMsg
		select {
		case m, open = <-batch.Messages():
			if !open {
				continue
			}
			took++
			p.watched.note(m)
			switch {
			case ctx.Err() != nil:
				_ = m.Nak() // else it comes again after ackWait
			case p.lobby != nil:
				left = p.lobby.receive(p, m)
			default:
				p.start(ctx, m)
			}
		case <-again:
			left = p.lobby.attend(false)
		}
	}
	p.eager.Store(took == n)
	if took < n {
		p.pressed.Store(false)
	}
	return took, left, waited(batch.Error())
}

// crowded reports whether more waits than there are slots, as far as is known.
func (p *puller) crowded() bool { return p.eager.Load() || p.pressed.Load() }

// waited drops the errors that only say that no more messages came in time.
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
	seats := int64(0)
	if p.seated(m) {
		seats = 1
	}
	p.seats.Add(seats)
	p.busy.Add(1)
	p.wg.Go(func() {
		p.one(ctx, m)
		p.seats.Add(-seats)
		p.busy.Add(-1)
		if p.lobby != nil {
			p.lobby.attend(false)
		}
	})
}

// one handles a message and says what became of it. If that is lost the
// message comes again, which is harmless.
func (p *puller) one(ctx context.Context, m jsMsg) {
	stop := make(chan struct{})
	var alive sync.WaitGroup
	alive.Go(func() { p.keep(m, stop) })
	handling, cancel := context.WithTimeout(ctx, holdMost)
	f := p.handle(handling, m)
	cancel()
	close(stop)
	alive.Wait()
	var err error
	switch {
	case f == done:
		err = m.Ack()
	case ctx.Err() != nil:
		err = m.Nak()
	case f == other:
		err = m.NakWithDelay(retryFirst)
	default:
		delivered := uint64(1)
		if meta, err := m.Metadata(); err == nil {
			delivered = meta.NumDelivered
		}
		err = m.NakWithDelay(retryDelay(delivered))
	}
	if err != nil {
		p.c.o.Logger.Warn("a message will come again though it was handled", "stream", p.stream, "subject", m.Subject(), "err", err)
	}
}

// keep says that a message is being handled until stop is closed. It says so no
// more, and others get the message, if handling does not end when its time is
// over.
func (p *puller) keep(m jsMsg, stop <-chan struct{}) {
	t, most := time.NewTicker(ackWait/3), time.NewTimer(holdMost+ackWait)
	defer t.Stop()
	defer most.Stop()
	for {
		select {
		case <-t.C:
			_ = m.InProgress()
		case <-most.C:
			p.c.o.Logger.Error("a message is left to others, because handling it does not end here", "stream", p.stream, "subject", m.Subject())
			return
		case <-stop:
			return
		}
	}
}

// retryDelay grows with each delivery and has a random part.
func retryDelay(delivered uint64) time.Duration {
	d := retryMost
	if n := delivered - min(delivered, 1); n < 6 {
		d = min(retryFirst<<n, retryMost)
	}
	return d/2 + rand.N(d)/2
}

// pause waits, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
