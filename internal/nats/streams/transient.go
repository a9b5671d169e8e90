package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/internal/nats/conn"
)

// WillPass reports whether an error of Connect, Provision or Verify may pass without a
// change of the settings: no server answers yet, a stream has no leader, too few servers of
// a cluster are up, or the servers' sync configuration is not available yet. Rejected
// credentials, settings that differ from this release's, insufficient durability and full
// disks do not pass.
func WillPass(err error) bool {
	if e, ok := errors.AsType[*DurabilityError](err); ok {
		return e.Cause != nil
	}
	switch {
	case err == nil, errors.Is(err, conn.ErrFull), errors.Is(err, conn.ErrDenied), errors.Is(err, context.Canceled):
		return false
	case conn.APICode(err) == codeReplicasSingle: // the servers are no cluster
		return false
	case errors.Is(err, conn.ErrUnreachable), conn.APICode(err) == codeNoPeers:
		return true
	}
	return conn.IsTransient(err)
}

// Answering returns nil if this connection can accept work now: it is connected, the
// servers store as the level demands, the leader of the stream of tasks answers, and a
// message can be stored. Otherwise it returns an error with the obstacle. ctx bounds the
// wait; it makes one attempt.
func (c *Streams) Answering(ctx context.Context) error {
	if !c.Conn.NC.IsConnected() {
		return fmt.Errorf("%w: %s: the connection is lost and is being made again", conn.ErrUnreachable, c.Conn.Servers())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.Conn.Linked(), cancel)()
	if err := c.Durable(ctx); err != nil {
		return err
	}
	if _, err := c.Messages.StreamInfo(ctx, StreamTasks); err != nil {
		return fmt.Errorf("nats/streams: stream %s of %s: %w", StreamTasks, c.Conn.Servers(), conn.StreamError(err))
	}
	return c.Capacity.Stores(ctx)
}
