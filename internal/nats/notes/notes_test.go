package notes

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/memory/memorytest"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// layer connects in the tests.
var layer = streamstest.Layer[*streams.Streams](func(s *streams.Streams) *streams.Streams { return s })

func open(tb testing.TB, s *streams.Streams, name string) *Store {
	tb.Helper()
	m := must.Get(Open(s, "acme", name, nil))(tb)
	tb.Cleanup(func() { must.Report(tb, m.Close()) })
	return m
}

func TestStore(t *testing.T) {
	t.Parallel()
	s := layer.Open(t)
	var n atomic.Int64
	memorytest.TestStore(t, func(t *testing.T) memory.Store { return open(t, s, fmt.Sprint("m", n.Add(1))) })
}
