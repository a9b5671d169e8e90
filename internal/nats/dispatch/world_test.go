package dispatch

import (
	"net"
	"testing"

	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// layer connects in the tests.
var layer = streamstest.Layer[*Dispatch](func(s *streams.Streams) *Dispatch {
	logs := eventlog.NewLogs(s)
	return NewDispatch(s, logs, project.NewProjections(s, logs))
})

func TestMain(m *testing.M) { natstest.Main(m) }

type netConn = net.Conn
