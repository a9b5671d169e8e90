package conn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// FollowAhead bounds the messages in transit to a follower.
const FollowAhead = 128

// Follow sends a stream's messages under a subject to out: those from a sequence on, in
// order, each of them once, even across the loss of a connection or of a server. It returns
// when ctx ends. It does not send messages removed from the stream.
func (ms *Messages) Follow(ctx context.Context, stream, filter string, from uint64, out chan<- Message) error {
	from = max(from, 1)
	told := false // the interruption was logged, since the last message
	for wait := NewBackoff(); ; {
		next, err := ms.followOnce(ctx, stream, filter, from, out)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if next > from {
			from, wait, told = next, NewBackoff(), false
		}
		level := slog.LevelInfo
		if told {
			level = slog.LevelDebug
		}
		told = true
		ms.conn.Logger.Log(ctx, level, "following a stream again", "stream", stream, "from", from, "err", err)
		if err := wait.Sleep(ctx); err != nil {
			return err
		}
	}
}

const (
	// followPull is how long a follower's request for messages stands, and followBeat the
	// interval of the server's heartbeats: a request that was lost, as during an election,
	// is noticed after two of them.
	followPull = 10 * time.Second
	followBeat = time.Second
	// followGone is how long a consumer outlives its follower.
	followGone = 30 * time.Second
	// reachFirst is how long a new consumer may take to answer before the request is
	// repeated; the time doubles with each attempt.
	reachFirst = 25 * time.Millisecond
	// HistoryCheck is how often the leader is checked for the missing rest of a history:
	// its last messages may have been removed.
	HistoryCheck = time.Second
	// apiNext is the subject prefix of requests to a consumer for messages.
	apiNext = "$JS.API.CONSUMER.MSG.NEXT."
)

// errGap is returned when messages to the follower were lost.
var errGap = errors.New("nats/conn: messages were lost on the way")

// followOnce follows with one consumer and returns the sequence from which to continue.
func (ms *Messages) followOnce(ctx context.Context, stream, filter string, from uint64, out chan<- Message) (uint64, error) {
	failed := func(err error) (uint64, error) {
		return from, fmt.Errorf("nats/conn: follow stream %s: %w", stream, err)
	}
	// The consumer lives in the memory of one server and has no acknowledgements: the
	// follower stores its own position, and makes a new consumer when this one is lost.
	consumer, err := Call(ctx, ms.conn, APIConsumerCreate+stream, func(ctx context.Context) (jetstream.Consumer, error) {
		return ms.conn.JS.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
			FilterSubject:     filter,
			DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
			OptStartSeq:       from,
			AckPolicy:         jetstream.AckNonePolicy,
			MemoryStorage:     true,
			Replicas:          1,
			InactiveThreshold: followGone,
			MaxRequestBatch:   FollowAhead,
		})
	})
	if err == nil {
		err = ms.reach(ctx, stream, consumer.CachedInfo().Name)
	}
	if err != nil {
		return failed(err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(FollowAhead), jetstream.PullExpiry(followPull), jetstream.PullHeartbeat(followBeat))
	if err != nil {
		return failed(err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ms.conn.Linked(), messages.Stop)()
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
		case out <- Message{m.Subject(), meta.Sequence.Stream, meta.Timestamp, m.Headers(), m.Data(), meta.NumPending}:
			from = meta.Sequence.Stream + 1
		case <-ctx.Done():
			return from, ctx.Err()
		}
	}
}

// reach returns when a follower's new consumer receives requests. In a cluster the news of
// its creation and the news of its subject travel separately, and the first may be earlier.
// A request sent in between is lost without an error, and a lost request for messages is
// noticed only after two heartbeats. So reach requests more messages than the consumer may
// deliver: the consumer answers with an error, and delivers none.
func (ms *Messages) reach(ctx context.Context, stream, consumer string) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	body := fmt.Appendf(nil, `{"batch":%d}`, FollowAhead+1)
	for wait := reachFirst; ; wait *= 2 {
		attempt, cancel := context.WithTimeout(ctx, wait)
		_, err := ms.conn.Request(attempt, &nats.Msg{Subject: apiNext + stream + "." + consumer, Data: body})
		if errors.Is(err, nats.ErrNoResponders) {
			<-attempt.Done() // otherwise the answer is the same at once
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

// LastSequence returns the sequence of the newest message of a stream, zero for an empty
// one. The stream's leader answers.
func (ms *Messages) LastSequence(ctx context.Context, stream string) (uint64, error) {
	return Retry(ctx, func(ctx context.Context) (uint64, error) {
		info, err := ms.StreamInfo(ctx, stream)
		if err != nil {
			return 0, fmt.Errorf("nats/conn: look at stream %s: %w", stream, StreamError(err))
		}
		return info.State.LastSeq, nil
	})
}

// Holds asks the leader of a stream whether it has messages from a sequence up to another.
// A follower's consumer cannot answer that: its replica may be behind.
func (ms *Messages) Holds(ctx context.Context, stream string, from, to uint64) (bool, error) {
	m, err := ms.LeaderNext(ctx, stream, ">", from)
	if errors.Is(err, ErrNoMessage) {
		return false, nil
	}
	return err == nil && m.Seq <= to, err
}
