//go:build e2e

package api_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// A bareCluster measures how long a cluster delays a program that does not use Rath: it
// publishes a message to a stream of its own, makes a consumer and reads the message, again
// and again. When the disk stalls for seconds, servers elect leaders again, and no relay
// can be faster than they are.
type bareCluster struct {
	mu    sync.Mutex
	worst time.Duration
	began time.Time // of the pass that is under way
}

// startBare measures until the test ends.
func startBare(ctx context.Context, t *testing.T, cluster *natstest.Cluster) *bareCluster {
	t.Helper()
	nc := must.Get(nats.Connect(cluster.URLs(0), nats.MaxReconnects(-1)))(t)
	js := must.Get(jetstream.New(nc))(t)
	must.Get(js.CreateStream(ctx, jetstream.StreamConfig{Name: "BARE", Subjects: []string{"bare"}, Replicas: 3, MaxMsgs: 64}))(t)
	ctx, cancel := context.WithCancel(ctx)
	b := &bareCluster{began: time.Now()}
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			b.pass(ctx, js)
			conn.Pause(ctx, 100*time.Millisecond)
		}
	})
	t.Cleanup(func() {
		cancel()
		work.Wait()
		nc.Close()
	})
	return b
}

// pass repeats until a message has been published and read.
func (b *bareCluster) pass(ctx context.Context, js jetstream.JetStream) {
	b.mu.Lock()
	b.began = time.Now()
	b.mu.Unlock()
	attempt := func() error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		ack, err := js.Publish(ctx, "bare", nil)
		if err != nil {
			return err
		}
		consumer, err := js.CreateConsumer(ctx, "BARE", jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: ack.Sequence,
			AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
		})
		if err != nil {
			return err
		}
		defer js.DeleteConsumer(ctx, "BARE", consumer.CachedInfo().Name)
		_, err = consumer.Next(jetstream.FetchContext(ctx))
		return err
	}
	for attempt() != nil && ctx.Err() == nil {
		conn.Pause(ctx, 10*time.Millisecond)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.worst = max(b.worst, time.Since(b.began))
}

// allowance returns the time that the cluster may add to a limit, and begins a new
// measurement: zero if no pass took a second, else the longest one and an election, since
// each stream elects a leader of its own.
func (b *bareCluster) allowance() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	worst := max(b.worst, time.Since(b.began))
	b.worst = 0
	if worst < time.Second {
		return 0
	}
	return worst + streams.ElectionMost
}
