package natsbus

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/session"
)

// roomLog is a log that keeps the last room of an event stream for what is vital.
// It decides before anything is stored, so also before data goes to blobs.
type roomLog struct {
	session.Log
	session.Snapshotter
	c *Logs
}

// Append implements session.Log.
func (l *roomLog) Append(ctx context.Context, at session.Position, c session.Commit) (session.Position, error) {
	if d, room := l.c.diskRoom(); room == RoomNone || room == RoomEnds && !journal.IsTerminalOnly(c.Events) {
		return session.Position{}, fmt.Errorf("natsbus: append %d to %s: %w: the disk of the store has %s; %s", c.Seq, c.Key, conn.ErrFull, d, remedyDisk)
	}
	if l.c.capacity.scarce.Load() {
		stream, _, err := l.c.place(c.Key)
		if err != nil {
			return session.Position{}, err
		}
		if f := l.c.capacity.fill(stream); f.Room() == RoomEnds && !journal.IsTerminalOnly(c.Events) {
			return session.Position{}, fmt.Errorf("natsbus: append %d to %s: %w: stream %s holds %s, and the rest is kept for what ends runs; %s",
				c.Seq, c.Key, conn.ErrFull, stream, f, remedy)
		}
	}
	return l.Log.Append(ctx, at, c)
}
