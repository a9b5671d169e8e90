package conn

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestErrorsSayWhatToDo: errors of the client library get a text with their meaning, and
// still match for programs.
func TestErrorsSayWhatToDo(t *testing.T) {
	for want, tc := range map[string]struct{ err, is error }{
		"nats/conn: read stream KV_NODE: nats: no responders available for request: the servers that hold it are starting or away; try again in a moment": {statusError("KV_NODE", "503", nil), nats.ErrNoResponders},
		"no connection to NATS": {StreamError(nats.ErrReconnectBufExceeded), nats.ErrReconnectBufExceeded},
		"nats: API error: code=404 err_code=10059 description=stream not found: run Provision first (rath cluster provision)": {StreamError(jetstream.ErrStreamNotFound), jetstream.ErrStreamNotFound},
	} {
		if tc.err.Error() != want || !errors.Is(tc.err, tc.is) {
			t.Errorf("%v\nwant %s", tc.err, want)
		}
	}
}
