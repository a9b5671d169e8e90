package natsbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// followAhead bounds the messages that are on their way to a follower.
const followAhead = 128

// follow sends a stream's messages under a subject to out: those from a
// sequence on, in order, each of them once, also over the loss of a connection
// or of a server. It returns when ctx ends. What was removed from the stream is
// not sent.
func (c *Conn) follow(ctx context.Context, stream, filter string, from uint64, out chan<- stored) error {
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
	// reachFirst is how long a new consumer may take to answer before it is
	// asked again, and after twice the time again.
	reachFirst = 25 * time.Millisecond
	// historyCheck is how often the leader is asked whether it has what is still
	// missing of a history: its last messages may have been removed.
	historyCheck = time.Second
	// apiNext is where a consumer is asked for messages.
	apiNext = "$JS.API.CONSUMER.MSG.NEXT."
)

// errGap is returned when messages were lost on the way to the follower.
var errGap = errors.New("natsbus: messages were lost on the way")

// followOnce follows with one consumer and returns the sequence to go on from.
func (c *Conn) followOnce(ctx context.Context, stream, filter string, from uint64, out chan<- stored) (uint64, error) {
	failed := func(err error) (uint64, error) { return from, fmt.Errorf("natsbus: follow stream %s: %w", stream, err) }
	// The consumer lives in the memory of one server and acknowledges nothing:
	// the follower knows where it is, and makes a new one when this is lost.
	consumer, err := api(ctx, c, apiConsumerCreate+stream, func(ctx context.Context) (jetstream.Consumer, error) {
		return c.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
			FilterSubject:     filter,
			DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
			OptStartSeq:       from,
			AckPolicy:         jetstream.AckNonePolicy,
			MemoryStorage:     true,
			Replicas:          1,
			InactiveThreshold: followGone,
			MaxRequestBatch:   followAhead,
		})
	})
	if err == nil {
		err = c.reach(ctx, stream, consumer.CachedInfo().Name)
	}
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
		select {
		case out <- stored{m.Subject(), meta.Sequence.Stream, meta.Timestamp, m.Headers(), m.Data()}:
			from = meta.Sequence.Stream + 1
		case <-ctx.Done():
			return from, ctx.Err()
		}
	}
}

// reach returns when a new consumer of a follower hears what this process asks
// of it. In a cluster the news that it was made comes by another way than the
// news of where it listens, and may be earlier: what it is asked meanwhile is
// lost without a word, and a request for messages is missed only after two
// beats. What is asked here is more than it may give: it says so, and gives
// nothing.
func (c *Conn) reach(ctx context.Context, stream, consumer string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body := fmt.Appendf(nil, `{"batch":%d}`, followAhead+1)
	for wait := reachFirst; ; wait *= 2 {
		attempt, cancel := context.WithTimeout(ctx, wait)
		_, err := c.request(attempt, &nats.Msg{Subject: apiNext + stream + "." + consumer, Data: body})
		if errors.Is(err, nats.ErrNoResponders) {
			<-attempt.Done() // the same at once
		}
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrNoResponders) {
			return fmt.Errorf("reach consumer %s: %w", consumer, err)
		}
	}
}

// lastSequence asks for the sequence of the newest message of a stream, zero
// for an empty one. The stream's leader answers.
func (c *Conn) lastSequence(ctx context.Context, stream string) (uint64, error) {
	return retry(ctx, func(ctx context.Context) (uint64, error) {
		s, err := api(ctx, c, apiStreamInfo+stream, func(ctx context.Context) (jetstream.Stream, error) { return c.js.Stream(ctx, stream) })
		if err != nil {
			return 0, fmt.Errorf("natsbus: look at stream %s: %w", stream, streamError(err))
		}
		return s.CachedInfo().State.LastSeq, nil
	})
}

// holds asks the leader of a stream whether it has messages from a sequence up to
// another. A follower's consumer cannot tell: its replica may be behind.
func (c *Conn) holds(ctx context.Context, stream string, from, to uint64) (bool, error) {
	m, err := c.leaderNext(ctx, stream, ">", from)
	if errors.Is(err, errNoMessage) {
		return false, nil
	}
	return err == nil && m.Seq <= to, err
}

// streamError says what to do about a missing stream.
func streamError(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: run Provision first (rath provision)", err)
	}
	return err
}
