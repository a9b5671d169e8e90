package streams_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/session"
)

// TestHolding has two tenants write to one stream, one of them few large commits
// at its beginning and the other many small ones.
func TestHolding(t *testing.T) {
	c := layer.Dial(t, streamstest.NodeOptions(natstest.Start(t, nil)))
	must.Do(t, c.Provision(t.Context()))
	stream := ""
	write := func(tenant session.Tenant, n, size int) (bytes uint64) {
		for i, sessions := 0, 0; sessions < n; i++ {
			k := session.Key{Tenant: tenant, ID: sessiontest.Key(fmt.Sprint("s", i)).ID}
			in, _ := must.Pair(eventlog.EventSubject(k))(t)
			if stream == "" {
				stream = in
			}
			if in != stream {
				continue
			}
			before := streamBytes(t, c, stream)
			sessiontest.Append(t, eventlog.NewLogs(c).Log(), commitlog.Position{}, sessiontest.Commit(k, commitlog.Position{}, strings.Repeat("x", size)))
			bytes += streamBytes(t, c, stream) - before
			sessions++
		}
		return bytes
	}
	near := func(tenant session.Tenant, want uint64) {
		t.Helper()
		h, err := c.Capacity.SampleUsage(t.Context(), stream, tenant)
		if err != nil || h.Bytes < want*9/10 || h.Bytes > want*11/10 {
			t.Errorf("%s holds about %d bytes (%v), want %d", tenant, h.Bytes, err, want)
		}
	}
	large := write("large", 20, 20_000)
	if h, err := c.Capacity.SampleUsage(t.Context(), stream, "large"); err != nil || !h.Alone {
		t.Errorf("the only tenant: %+v, %v", h, err)
	}
	small := write("small", 200, 200)
	near("large", large)
	near("small", small)
	near("nobody", 0)
	near("larg", 0) // whose name another's begins with
}

func streamBytes(t *testing.T, c *streams.Streams, stream string) uint64 {
	t.Helper()
	s := must.Get(c.Conn.JS.Stream(t.Context(), stream))(t)
	return s.CachedInfo().State.Bytes
}
