package archive

import (
	"os"
	"testing"

	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/natstest"
)

// layer connects in the tests.
var layer = streamstest.Over(func(s *streams.Streams) *Archive {
	return NewArchive(project.NewProjections(eventlog.NewLogs(s)))
})

func TestMain(m *testing.M) {
	if url := os.Getenv(sweeper); url != "" {
		os.Exit(sweepUntilKilled(url))
	}
	natstest.Main(m)
}
