package project

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
)

// watermarks hold the progress of this process's relays: the sequence of the last message
// of each event stream whose lineage is published. A request for a recent commit waits for
// it.
type watermarks struct {
	// connection returns the incarnation of the connection. A watermark is valid only for
	// the connection over which it was reached: behind another one a server may have lost
	// lineage.
	connection func() uint64

	mu      sync.Mutex
	at      map[string]watermark // by stream; absent where no relay runs here
	changed chan struct{}        // closed at the next change
	coming  int                  // relays whose streams are not known yet
}

type watermark struct{ seq, connection uint64 }

func newWatermarks(connection func() uint64) *watermarks {
	return &watermarks{connection: connection, at: map[string]watermark{}, changed: make(chan struct{})}
}

// Expect announces a relay. Waiters wait until known is called, once or more often: then
// the streams that it relays are known.
func (r *watermarks) Expect() (known func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.coming++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.coming--
		r.change()
	})
}

// change wakes the waiters; mu is held.
func (r *watermarks) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Begin reports that a relay of a stream begins.
func (r *watermarks) Begin(stream string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at[stream] = watermark{}
	r.change()
}

// Pass reports that the lineage of a stream is published up to a sequence, over a
// connection.
func (r *watermarks) Pass(stream string, connection, seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.at[stream]; old.connection == connection {
		seq = max(seq, old.seq)
	}
	r.at[stream] = watermark{seq, connection}
	r.change()
}

// End reports that the relay of a stream has ended.
func (r *watermarks) End(stream string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.at, stream)
	r.change()
}

// Here reports whether a relay of the stream runs in this process, and its watermark.
func (r *watermarks) Here(stream string) (at uint64, here bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	mark, here := r.at[stream]
	if mark.connection != r.connection() {
		mark.seq = 0
	}
	return mark.seq, here
}

// wait returns when the lineage of a stream is published up to a sequence;
// here is false when no relay of it runs in this process, nor will in a moment.
func (r *watermarks) wait(ctx context.Context, stream string, seq uint64) (here bool, err error) {
	for {
		r.mu.Lock()
		changed, coming := r.changed, r.coming
		r.mu.Unlock()
		at, here := r.Here(stream) // after changed, which later changes close
		if !here && coming == 0 || here && at >= seq {
			return here, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return true, fmt.Errorf("nats/project: lineage of %s is at %d of %d; ask again later: %w", stream, at, seq, ctx.Err())
		}
	}
}

// relayedSubject is the subject on which the relay of an event stream answers once it has
// passed a sequence.
func relayedSubject(stream string) string { return "rath.node.relayed." + stream }

// relayedFor is how long a relay waits before it answers that it has not passed a sequence,
// and how long a request waits for the relay, which may have ended with the request.
const relayedFor = time.Second

// serveWatermark answers other processes while a relay of the stream runs here.
// A process without an answer asks the next relay.
func (c *Projections) serveWatermark(ctx context.Context, stream string) (*conn.Service, error) {
	s := c.conn.NewService(ctx)
	s.Limit = relayedFor
	sub, err := c.conn.NC.Subscribe(relayedSubject(stream), func(m *nats.Msg) {
		s.Go(conn.RequestOf(m), func(ctx context.Context) {
			seq, err := strconv.ParseUint(string(m.Data), 10, 64)
			if err != nil {
				return
			}
			here, err := c.Watermarks.wait(ctx, stream, seq)
			_ = m.Respond(strconv.AppendBool(nil, here && err == nil)) // fails with the connection
		}, func(error) {}) // a process without an answer asks the next relay
	})
	if err != nil {
		return nil, fmt.Errorf("nats/project: answer %s: %w", relayedSubject(stream), err)
	}
	s.Close = func() error { // at once: the next relay waits
		defer s.Cancel() // the answers cannot come here any more
		return sub.Unsubscribe()
	}
	return s, nil
}

// WaitCaughtUp waits until the lineage of everything committed before the call is
// published, by this process or by other relays. It does not wait for partitions without a
// relay, nor for records that cannot be stored: then readers are answered with the existing
// records.
func (c *Projections) WaitCaughtUp(ctx context.Context) error {
	if _, room := c.streams.Capacity.DiskRoom(); room == streams.RoomNone {
		return nil
	}
	var wg sync.WaitGroup
	errs := make([]error, c.streams.Partitions())
	for p := range c.streams.Partitions() {
		wg.Go(func() { errs[p] = c.relayedOf(ctx, streams.EventStream(c.streams.Generation(), p)) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *Projections) relayedOf(ctx context.Context, stream string) error {
	end, err := c.messages.LastSequence(ctx, stream)
	if err != nil || end == 0 {
		return err
	}
	here, err := c.Watermarks.wait(ctx, stream, end)
	if here || err != nil {
		return err
	}
	for wait := conn.NewBackoff(); ; {
		try, cancel := context.WithTimeout(ctx, relayedFor)
		m, err := c.conn.NC.RequestWithContext(try, relayedSubject(stream), strconv.AppendUint(nil, end, 10))
		cancel()
		if errors.Is(err, nats.ErrNoResponders) || err == nil && string(m.Data) == "true" {
			return nil
		}
		if wait.Sleep(ctx) != nil {
			return fmt.Errorf("nats/project: lineage of %s is not at %d yet; ask again later: %w", stream, end, ctx.Err())
		}
	}
}
