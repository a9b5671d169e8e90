package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// standingTimeout bounds the question how a run stands, standingAgain is when it
	// is repeated: a partition has no relay at the moment of a handover.
	standingTimeout = 2 * time.Second
	standingAgain   = 20 * time.Millisecond
)

// standingOf asks the relay of a partition how a run stands.
type standingOf struct {
	Tenant  session.Tenant `json:"tenant"`
	Session session.ID     `json:"session"` // the run's home
	Run     run.ID         `json:"run"`
}

func standingSubject(generation, partition uint32) string {
	return fmt.Sprintf("%sstanding.%d.%d", messages.NodePrefix, generation, partition)
}

// Standing asks the relay of its partition how a run stands. The answer is without a
// state if nothing of the run is open there. conn.ErrNoAnswer: the partition has no
// relay, which takes a few seconds at the most while a node lives.
func (c *Dispatch) Standing(ctx context.Context, home session.Key, id run.ID) (st schedule.Standing, err error) {
	g, p, ok := home.ID.Locate()
	if !ok {
		return st, fmt.Errorf("session %s: %w", home, session.ErrNotFound)
	}
	data, err := json.Marshal(standingOf{home.Tenant, home.ID, id})
	if err != nil {
		return st, err
	}
	ctx, cancel := context.WithTimeout(ctx, standingTimeout)
	defer cancel()
	for ctx.Err() == nil {
		m, err := c.NC.RequestWithContext(ctx, standingSubject(g, p), data)
		if err == nil && json.Unmarshal(m.Data, &st) == nil {
			return st, nil
		}
		conn.Pause(ctx, standingAgain)
	}
	return st, fmt.Errorf("%w for partition %d, which no relay has at the moment; ask again in a few seconds", conn.ErrNoAnswer, p)
}
