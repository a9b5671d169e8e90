package eventlog

import (
	"testing"

	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// layer connects in the tests.
var layer = streamstest.Layer[*Logs](NewLogs)

func TestMain(m *testing.M) { natstest.Main(m) }
