//go:build linux && e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/testkit/fleet"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
)

// TestFleetRights: the nodes of these tests may remove the same as in production: the
// streams in memory, and no durable data.
func TestFleetRights(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	f := must.Get(fleet.Start(ctx, &fleet.Options{Dir: t.TempDir(), Servers: 1}))(t)
	t.Cleanup(func() { must.Report(t, f.Close()) })
	refused := make(chan struct{}, 1)
	user, password := f.NodeLogin()
	nc := must.Get(nats.Connect(f.URLs(0), nats.UserInfo(user, password), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if strings.Contains(err.Error(), "STREAM.DELETE") {
			refused <- struct{}{}
		}
	})))(t)
	defer nc.Close()
	js := must.Get(jetstream.New(nc))(t)
	allowed := map[string]bool{"KV_" + messages.BucketNode: true}
	for _, name := range []string{
		"KV_" + messages.BucketNode, messages.EventStream(1, 0), messages.EventStream(1, 63), messages.StreamTasks,
		messages.StreamSnap, messages.StreamLineage, messages.StreamResult, messages.StreamDLQ, messages.StreamBlob, messages.StreamMemory,
		"KV_" + messages.BucketRegistry, "KV_" + messages.BucketAlias, "KV_" + messages.BucketAccess,
	} {
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{"x." + name}, Storage: jetstream.MemoryStorage}); err != nil {
			t.Fatalf("stream %s: %v", name, err)
		}
		// A rejected request gets no answer.
		try, cancel := context.WithTimeout(ctx, 20*time.Second)
		deleted := make(chan error, 1)
		go func() { deleted <- js.DeleteStream(try, name) }()
		select {
		case <-refused:
			cancel()
			<-deleted
			if allowed[name] {
				t.Errorf("a node may not make %s a second time", name)
			}
		case err := <-deleted:
			cancel()
			if !allowed[name] || err != nil {
				t.Errorf("a node removes %s: %v, which was not refused", name, err)
			}
		}
	}
}
