package dispatch

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/session"
)

// TestSpilledMeanwhile relays a commit that submits a run and whose data lies in a blob,
// while no server answers for blobs: until the relay ends and another one takes over, or
// for longer than any wait. The run is offered, and published, once the blobs are readable.
func TestSpilledMeanwhile(t *testing.T) {
	for name, tc := range map[string]struct {
		away time.Duration
		ends bool
	}{"the relay ends": {5 * time.Second, true}, "for long": {3 * conn.RetryBudget, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, w := streamstest.NodeOptions(natstest.Start(t, nil)), &natstest.Wire{}
				other := layer.Dial(t, o)
				must.Do(t, other.streams.Provision(t.Context()))
				relay := func() (stop func()) {
					c := layer.DialThrough(t, w, o)
					return natstest.Background(t, func(ctx context.Context) error { return c.StartRelay(ctx, nil).Wait() })
				}
				dispatched := takeAll(t, other)
				stop := relay()
				time.Sleep(3 * time.Second)
				var asked atomic.Int32
				w.Set(nil, func(b []byte) bool {
					for {
						i := bytes.Index(b, []byte("GET.BLOB"))
						if i < 0 {
							return true
						}
						asked.Add(1)
						copy(b[i:], "GEX") // without a listener
					}
				})
				k := session.Key{Tenant: session.DefaultTenant, ID: other.logs.HomeOf(session.DefaultTenant, "r1")}
				submitted := must.Get(journal.NewEvent(journal.KindSubmitted, map[string]any{
					"digest": "d", "task": map[string]any{"run": "r1", "workflow": "w", "input": strings.Repeat("many words ", 10_000)},
				}))(t)
				first := sessiontest.Commit(k, commitlog.Position{}, "hi")
				first.Events = append(first.Events, submitted)
				sessiontest.Append(t, other.logs.Log(), commitlog.Position{}, first)
				time.Sleep(tc.away)
				synctest.Wait()
				if asked.Load() == 0 {
					t.Error("no blob was asked for: the test shows nothing")
				}
				if tc.ends {
					stop()
				}
				w.Set(nil, nil)
				if tc.ends {
					stop = relay()
				}
				time.Sleep(30 * time.Second)
				stop()
				if n := dispatched(); n == 0 {
					t.Error("the run was not dispatched")
				}
				end := must.Get(other.messages.LastSequence(t.Context(), streams.StreamLineage))(t)
				told := 0
				for m, err := range other.messages.UpTo(t.Context(), streams.StreamLineage, streams.PrefixLineage+">", 0, end) {
					must.Do(t, err)
					if bytes.Contains(m.Data, []byte(`"r1"`)) {
						told++
					}
				}
				if told == 0 {
					t.Error("no record of the run was published")
				}
			})
		})
	}
}
