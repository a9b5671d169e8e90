package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/internal/nats/conn"
)

// WillPass reports whether an error of Connect, Provision or Verify is one that
// may pass without anybody changing a setting: no server answers yet, a stream
// has no leader, too few servers of a cluster are up, or the servers cannot be
// asked yet how they store. Refused credentials, other settings than this
// release needs, less durability than was asked for and full disks do not pass.
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

// Answering returns nil if this connection can take work at this moment: it is
// connected, the servers store as the level demands, the leader of the stream of
// tasks answers, and a message can be stored. Otherwise it says what is in the way.
// ctx bounds the wait; nothing is tried twice.
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
