package conn

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrCut is returned for a request whose connection was lost before the answer.
var ErrCut = errors.New("nats/conn: connection lost")

var (
	// ErrStaleLeader is returned for the answer of a leader that has not heard from a
	// majority for too long.
	ErrStaleLeader = errors.New("nats/conn: the stream's leader does not hear from a majority of its servers")
	// ErrBehind is returned for a read of a log that lacks the log's end.
	ErrBehind = errors.New("nats/conn: the server that was asked does not have the end of the log")
)

// unconnected is the error of a message that was not sent because no server is reached. The
// client library reports a full buffer: Rath gives it none, so that no message is sent
// after the caller has given up.
type unconnected struct{ error }

func (unconnected) Error() string   { return "no connection to NATS" }
func (e unconnected) Unwrap() error { return e.error }

// IsTransient reports whether an error comes from a connection or a leader that is being
// replaced.
func IsTransient(err error) bool {
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return e.Code >= 500
	}
	for _, target := range []error{ErrCut, ErrLeaderless, ErrStaleLeader, ErrBehind, context.DeadlineExceeded, nats.ErrNoResponders, nats.ErrReconnectBufExceeded, nats.ErrDisconnected, nats.ErrTimeout} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// The codes of servers that have no leader, or follow one that is being replaced.
const (
	codeNotAvailable = 10008
	codeNotLeader    = 10009
)

// ErrLeaderless is returned for a stream that none of its servers leads. The cluster's
// record of the stream is readable all the same.
var ErrLeaderless = errors.New("nats/conn: the stream has no leader")

// IsLeaderless reports whether an error comes from servers that elect a leader: some report
// it, others do not answer. Without JetStream no server listens.
func IsLeaderless(err error) bool {
	if code := APICode(err); code != 0 {
		return code == codeNotAvailable || code == codeNotLeader
	}
	return IsTransient(err) && !errors.Is(err, nats.ErrNoResponders)
}

// APICode is the server's code for a refused request, 0 for other errors.
func APICode(err error) int {
	if e, ok := errors.AsType[jetstream.JetStreamError](err); ok && e.APIError() != nil {
		return int(e.APIError().ErrorCode)
	}
	return 0
}
