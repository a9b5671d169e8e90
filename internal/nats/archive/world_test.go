package archive

import (
	"os"
	"testing"

	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// layer connects in the tests.
var layer = streamstest.Layer[*Archive](over)

func over(s *streams.Streams) *Archive {
	logs := eventlog.NewLogs(s)
	return NewArchive(s, logs, project.NewProjections(s, logs))
}

func TestMain(m *testing.M) {
	if url := os.Getenv(sweeper); url != "" {
		os.Exit(sweepUntilKilled(url))
	}
	natstest.Main(m)
}
