package streams

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
)

// Action is the action that provisioning takes on a stream, a bucket or a consumer.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "update"
	Keep   Action = "keep"   // it matches the wanted configuration
	Refuse Action = "refuse" // at least one of its differences is not changed
)

// The kinds of a Change.
const (
	KindStream   = "stream"
	KindBucket   = "bucket"
	KindConsumer = "consumer"
)

// Change is the change that provisioning makes to one stream, bucket or consumer.
type Change struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"` // of a consumer: "STREAM/consumer"
	Action Action `json:"action"`
	// About is a short description of the result, once everything is done.
	About       string       `json:"about"`
	Differences []Difference `json:"differences,omitempty"`
	// Away is the number of its replicas without a reachable server.
	Away int `json:"away,omitempty"`
	// Done reports that the servers have the wanted configuration.
	Done bool `json:"done"`

	want, have *jetstream.StreamConfig // of a stream or bucket
	queue      PullQueue
	made       int64 // creation time of the consumer, in nanoseconds
	lost       bool  // it exists, but no server serves it
	denied     *conn.PermissionError
}

// changes compares everything that options ask for with the existing streams, buckets and
// consumers. It calls more, if set, with each stream.
func (c *Streams) changes(ctx context.Context, o *Options, e *Lookup, more func(*Change, jetstream.StreamState)) ([]Change, error) {
	if o.StoreBytes < MinStoreBytes {
		return nil, fmt.Errorf("nats/streams: %d bytes for all streams: at least %d are needed", o.StoreBytes, MinStoreBytes)
	}
	var all []Change
	there := map[string]bool{}
	for _, want := range c.Reconciler.layout(o) {
		info, lost, err := c.Reconciler.findStream(ctx, e, want)
		if err != nil && !lost {
			return nil, o.provisionError(want, err)
		}
		ch := streamChange(want)
		ch.lost = lost
		state := jetstream.StreamState{}
		if info != nil {
			there[want.Name], state = true, info.State
			ch.found(&info.Config)
			ch.Away = away(info)
		}
		if more != nil {
			more(&ch, state)
		}
		ch.decide()
		all = append(all, ch)
	}
	for _, q := range []PullQueue{TasksQueue()} {
		ch := Change{Kind: KindConsumer, Name: q.Stream + "/" + q.Durable, Action: Create, About: q.filter, queue: q}
		if there[q.Stream] {
			consumer, lost, err := c.Reconciler.findQueue(ctx, e, q)
			if err != nil && !lost {
				return nil, fmt.Errorf("nats/streams: consumer %s of stream %s: %w", q.Durable, q.Stream, err)
			}
			if ch.lost = lost; consumer != nil {
				info := consumer.CachedInfo()
				ch.Action, ch.made, ch.Differences = Keep, info.Created.UnixNano(), q.differences(&info.Config)
				ch.decide()
			}
		}
		all = append(all, ch)
	}
	return all, nil
}

func streamChange(want jetstream.StreamConfig) Change {
	ch := Change{Kind: KindStream, Name: want.Name, Action: Create, want: &want}
	if name, ok := strings.CutPrefix(want.Name, "KV_"); ok {
		ch.Kind, ch.Name = KindBucket, name
	}
	return ch
}

// merged returns the configuration of a stream after the change.
func (ch *Change) merged() jetstream.StreamConfig {
	if ch.have == nil {
		return *ch.want
	}
	cfg := *ch.have
	cfg.Metadata = maps.Clone(cfg.Metadata)
	for _, d := range ch.Differences {
		if d.take != nil {
			d.take(&cfg, ch.want)
		}
	}
	return cfg
}

// away compares the wanted replicas of a stream with the servers that have one.
func away(info *jetstream.StreamInfo) int {
	if info.Cluster == nil {
		return 0
	}
	there := 1 // the leader, which answers
	for _, peer := range info.Cluster.Replicas {
		if !peer.Offline {
			there++
		}
	}
	return max(0, info.Config.Replicas-there)
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// found records the configuration of an existing stream.
func (ch *Change) found(have *jetstream.StreamConfig) {
	ch.Action, ch.have, ch.Differences = Keep, have, differences(ch.want, have)
}

// decide chooses the action for an existing stream, bucket or consumer.
func (ch *Change) decide() {
	if ch.want != nil {
		cfg := ch.merged()
		ch.About = fmt.Sprintf("%s, %s, %s", strings.ToLower(cfg.Storage.String()), counted(cfg.Replicas, "replica"), bytesText(cfg.MaxBytes))
	}
	if ch.lost {
		ch.About += "; no server serves the one that is there"
	}
	if ch.Action == Create {
		return
	}
	ch.Done = len(ch.Differences) == 0
	for _, d := range ch.Differences {
		if d.Refused != "" {
			ch.Action = Refuse
			return
		}
		ch.Action = Update
	}
}

func (ch *Change) config() jetstream.StreamConfig {
	if ch.want != nil {
		return *ch.want
	}
	return jetstream.StreamConfig{Name: ch.queue.Stream}
}

// carryOut makes a change. It is idempotent.
func (c *Streams) carryOut(ctx context.Context, e *Lookup, ch *Change) error {
	e.What = ch.Kind + " " + ch.Name
	_, err := conn.RetryElection(ctx, &e.Election, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.carryOutOnce(ctx, ch) })
	return err
}

func (c *Streams) carryOutOnce(ctx context.Context, ch *Change) error {
	switch {
	case ch.lost && ch.Kind == KindConsumer:
		_, err := c.Reconciler.recreateQueue(ctx, ch.queue, 0, unserved)
		return err
	case ch.lost:
		return c.Reconciler.recreateStream(ctx, *ch.want)
	case ch.Kind == KindConsumer && ch.Action == Update:
		_, err := c.Reconciler.recreateQueue(ctx, ch.queue, ch.made, "it is set up in another way than it should be")
		return err
	case ch.Kind == KindConsumer:
		_, err := c.Reconciler.putQueue(ctx, ch.queue)
		return err
	case ch.Action == Create:
		return c.Reconciler.makeStream(ctx, *ch.want)
	}
	cfg := ch.merged()
	_, err := conn.CallWithin(ctx, c.Conn, conn.APIStreamUpdate+cfg.Name, provisionFor, func(ctx context.Context) (jetstream.Stream, error) {
		return c.Conn.JS.UpdateStream(ctx, cfg)
	})
	return err
}
