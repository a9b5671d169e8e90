package requests

import (
	"context"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// repairAll bounds a client's attempts to repair.
const repairAll = 30 * time.Minute

// Repair repairs the lineage of all partitions, one after the other, and returns the
// changes of each relay. It repeats a request while a relay is at work.
func (c *Requests) Repair(ctx context.Context, t session.Tenant) (all []messages.Repaired, err error) {
	user, err := c.user(ctx, t)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, repairAll)
	defer cancel()
	wait := conn.NewBackoff()
	for p := uint32(0); ; {
		data, err := c.conn.Ask(ctx, messages.RepairSubject(t, user, p), nil)
		var a wire.RepairAnswer
		if err == nil {
			a, err = messages.Decode[wire.RepairAnswer]("answer", data)
		}
		if err == nil {
			err = a.Err()
		}
		if err != nil {
			return all, fmt.Errorf("partition %d: %w", p, err)
		}
		if !a.Done {
			if err := wait.Sleep(ctx); err != nil {
				return all, fmt.Errorf("partition %d: it is still being repaired: %w", p, err)
			}
			continue
		}
		wait = conn.NewBackoff()
		if all = append(all, a.Repaired); len(all) >= int(a.Partitions) {
			return all, nil
		}
		p++
	}
}
