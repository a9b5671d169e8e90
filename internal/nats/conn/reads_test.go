package conn_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// TestPagesUnanswered reads three pages while every second request for a page is lost: the
// reader gets each message once, in order.
func TestPagesUnanswered(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *conn.Conn, w *natstest.Wire) {
		const messages = 2*conn.PageMessages + 10
		var want []uint64
		for n := range messages {
			must.Get(c.Messages.Publish(t.Context(), &nats.Msg{Subject: streams.PrefixEvent + "1.0.default.s", Data: fmt.Append(nil, n)}))(t)
			want = append(want, uint64(n)+1)
		}
		requests := 0
		w.Set(nil, func(b []byte) bool {
			if bytes.Contains(b, []byte("$JS.API.DIRECT.GET.EV_1_0")) {
				if requests++; requests%2 == 1 {
					copy(b, bytes.ReplaceAll(b, []byte("$JS.API.DIRECT.GET.EV_1_0"), []byte("$JS.API.DIRECT.LOS.EV_1_0")))
				}
			}
			return true
		})
		var got []uint64
		for m, err := range c.Messages.From(t.Context(), streams.EventStream(1, 0), streams.PrefixEvent+">", 0) {
			must.Do(t, err)
			got = append(got, m.Seq)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d messages, want %d: %d", len(got), len(want), got)
		}
		if requests < 6 {
			t.Errorf("%d requests, want at least two for each page", requests)
		}
	})
}
