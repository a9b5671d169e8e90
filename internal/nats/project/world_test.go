package project

import (
	"testing"

	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// layer connects in the tests.
var layer = streamstest.Layer[*Projections](func(s *streams.Streams) *Projections { return NewProjections(s, eventlog.NewLogs(s)) })

func TestMain(m *testing.M) { natstest.Main(m) }
