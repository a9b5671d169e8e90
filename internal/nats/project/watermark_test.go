package project

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/session"
)

// TestLineageIsBehind asks a relay of another process that stays behind: a reader does not
// take the existing records for all of them, whenever its time is over.
func TestLineageIsBehind(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Projections, _ *natstest.Wire) {
		const stream = "EV_1_0"
		relay := layer.Dial(t, &c.streams.O)
		must.Get(relay.conn.NC.Subscribe(relayedSubject(stream), func(m *nats.Msg) {
			time.Sleep(relayedFor)
			_ = m.Respond([]byte("false"))
		}))(t)
		must.Do(t, relay.conn.Flush(t.Context()))
		must.Get(relay.conn.JS.Publish(t.Context(), streams.PrefixEvent+"1.0.default.s1", []byte("x")))(t)
		for try := range 10 {
			if err := c.CaughtUp(t.Context()); err == nil {
				t.Errorf("try %d: a reader is told that lineage has caught up", try)
			}
		}
		if _, err := c.History(t.Context(), session.DefaultTenant, 0); err == nil {
			t.Error("a list begins before lineage has caught up")
		}
		began := time.Now()
		if _, err := c.History(t.Context(), session.DefaultTenant, 1); err != nil || time.Since(began) > 0 {
			t.Errorf("the next page of a list takes %v, %v", time.Since(began), err)
		}
	})
}
