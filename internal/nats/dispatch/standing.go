package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// standingTimeout bounds the request for the state of a run.
const standingTimeout = 2 * time.Second

// standingOf requests the state of a run from the relay of a partition.
type standingOf struct {
	Tenant  session.Tenant `json:"tenant"`
	Session session.ID     `json:"session"` // the run's home
	Run     run.ID         `json:"run"`
}

func standingSubject(generation, partition uint32) string {
	return fmt.Sprintf("%sstanding.%d.%d", messages.NodePrefix, generation, partition)
}

// Standing returns the state of a run from the relay of its partition. The answer has no
// state if the run is not open there. The error is conn.ErrNoAnswer while the partition has
// no relay, which takes a few seconds at most while a node is alive.
func (c *Dispatch) Standing(ctx context.Context, home session.Key, id run.ID) (st schedule.Standing, err error) {
	g, p, ok := home.ID.Locate()
	if !ok {
		return st, fmt.Errorf("session %s: %w", home, session.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(ctx, standingTimeout)
	defer cancel()
	if c.Delivery.askRelay(ctx, standingSubject(g, p), standingOf{home.Tenant, home.ID, id}, &st) {
		return st, nil
	}
	return st, fmt.Errorf("%w for partition %d, which no relay has at the moment; ask again in a few seconds", conn.ErrNoAnswer, p)
}
