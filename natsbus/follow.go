package natsbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// followAhead bounds the messages that are on their way to a follower.
const followAhead = 128

// followed is a message of a stream with the number of those behind it.
type followed struct {
	stored
	pending uint64
}

// follow sends a stream's messages under a subject to out: those from a
// sequence on, in order, each of them once, also over the loss of a connection
// or of a server. It returns when ctx ends. What was removed from the stream is
// not sent.
func (c *Conn) follow(ctx context.Context, stream, filter string, from uint64, out chan<- followed) error {
	from = max(from, 1)
	for wait := newBackoff(); ; {
		next, err := c.followOnce(ctx, stream, filter, from, out)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if next > from {
			from, wait = next, newBackoff()
		}
		c.o.Logger.Info("following a stream again", "stream", stream, "from", from, "err", err)
		if err := wait.sleep(ctx); err != nil {
			return err
		}
	}
}

const (
	// followPull is how long a follower's request for messages stands, and
	// followBeat how often the server says that it does: a request that was
	// lost, as while servers elect, is noticed after two of them.
	followPull = 10 * time.Second
	followBeat = time.Second
	// followGone is how long a consumer outlives its follower.
	followGone = 30 * time.Second
)

// errGap is returned when messages were lost on the way to the follower.
var errGap = errors.New("natsbus: messages were lost on the way")

// followOnce follows with one consumer and returns the sequence to go on from.
func (c *Conn) followOnce(ctx context.Context, stream, filter string, from uint64, out chan<- followed) (uint64, error) {
	failed := func(err error) (uint64, error) { return from, fmt.Errorf("natsbus: follow stream %s: %w", stream, err) }
	// The consumer lives in the memory of one server and acknowledges nothing:
	// the follower knows where it is, and makes a new one when this is lost.
	making, cancel := context.WithTimeout(ctx, requestTimeout)
	consumer, err := c.js.CreateConsumer(making, stream, jetstream.ConsumerConfig{
		FilterSubject:     filter,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       from,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: followGone,
	})
	cancel()
	if err != nil {
		return failed(err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(followAhead), jetstream.PullExpiry(followPull), jetstream.PullHeartbeat(followBeat))
	if err != nil {
		return failed(err)
	}
	defer messages.Stop()
	defer context.AfterFunc(c.link.Load().ctx, messages.Stop)()
	for n := uint64(1); ; n++ {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return failed(err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return failed(err)
		}
		if meta.Sequence.Consumer != n {
			return failed(errGap)
		}
		f := followed{stored{m.Subject(), meta.Sequence.Stream, meta.Timestamp, m.Headers(), m.Data()}, meta.NumPending}
		select {
		case out <- f:
			from = meta.Sequence.Stream + 1
		case <-ctx.Done():
			return from, ctx.Err()
		}
	}
}

// lastSequence asks for the sequence of the newest message of a stream, zero
// for an empty one. The stream's leader answers.
func (c *Conn) lastSequence(ctx context.Context, stream string) (uint64, error) {
	return patiently(ctx, func(ctx context.Context) (uint64, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		s, err := c.js.Stream(ctx, stream)
		if err != nil {
			return 0, fmt.Errorf("natsbus: look at stream %s: %w", stream, streamError(err))
		}
		return s.CachedInfo().State.LastSeq, nil
	})
}

// streamError says what to do about a missing stream.
func streamError(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: run Provision first", err)
	}
	return err
}
