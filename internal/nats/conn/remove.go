package conn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// apiMsgDelete is the subject prefix of requests to remove a message of a stream.
const apiMsgDelete = "$JS.API.STREAM.MSG.DELETE."

// RemoveMessage removes the message with a sequence from a stream, with retries, and
// reports whether it existed. Its bytes stay on the disk until the server compacts them.
func (ms *Messages) RemoveMessage(ctx context.Context, stream string, seq uint64) (bool, error) {
	body, err := json.Marshal(struct {
		Seq     uint64 `json:"seq"`
		NoErase bool   `json:"no_erase"`
	}{seq, true})
	if err != nil {
		return false, err
	}
	return Retry(ctx, func(ctx context.Context) (bool, error) {
		m, err := ms.conn.Request(ctx, &nats.Msg{Subject: apiMsgDelete + stream, Data: body})
		if err != nil {
			return false, fmt.Errorf("nats/conn: remove message %d of stream %s: %w", seq, stream, err)
		}
		var reply struct {
			Error *jetstream.APIError `json:"error"`
		}
		if err := json.Unmarshal(m.Data, &reply); err != nil {
			return false, fmt.Errorf("nats/conn: remove message %d of stream %s: answer: %w", seq, stream, err)
		}
		if reply.Error == nil {
			return true, nil
		}
		if _, err := ms.LeaderAt(ctx, stream, seq); errors.Is(err, ErrNoMessage) {
			return false, nil
		}
		return false, fmt.Errorf("nats/conn: remove message %d of stream %s: %w", seq, stream, reply.Error)
	})
}
