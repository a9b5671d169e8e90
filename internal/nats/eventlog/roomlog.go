package eventlog

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/internal/commitlog"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// roomLog is a log that keeps the last room of an event stream for what is vital.
// It decides before anything is stored, so also before data goes to blobs.
type roomLog struct {
	commitlog.Log
	commitlog.Snapshotter
	c *Logs
}

// Append implements commitlog.Log.
func (l *roomLog) Append(ctx context.Context, at session.Position, c commitlog.Commit) (session.Position, error) {
	if d, room := l.c.DiskRoom(); room == streams.RoomNone || room == streams.RoomEnds && !journal.IsTerminalOnly(c.Events) {
		return session.Position{}, fmt.Errorf("nats/eventlog: append %d to %s: %w: the disk of the store has %s; %s", c.Seq, c.Key, conn.ErrFull, d, streams.RemedyDisk)
	}
	if l.c.Capacity.Scarce.Load() {
		stream, _, err := l.c.Place(c.Key)
		if err != nil {
			return session.Position{}, err
		}
		if f := l.c.Capacity.Fill(stream); f.Room() == streams.RoomEnds && !journal.IsTerminalOnly(c.Events) {
			return session.Position{}, fmt.Errorf("nats/eventlog: append %d to %s: %w: stream %s holds %s, and the rest is kept for what ends runs; %s",
				c.Seq, c.Key, conn.ErrFull, stream, f, streams.Remedy)
		}
	}
	return l.Log.Append(ctx, at, c)
}
