package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// repairFor is how long a node waits for a repair before it answers that it goes on.
	repairFor = 20 * time.Second
	// repairAll is how long a client asks for one.
	repairAll = 30 * time.Minute
)

// controlRepair has the relay of a partition repair its lineage.
func (c *controls) controlRepair(ctx context.Context, of wire.Controlled) wire.RepairAnswer {
	ctx, cancel := context.WithTimeout(ctx, repairFor)
	defer cancel()
	a := wire.RepairAnswer{Partitions: c.all.Streams.Partitions()}
	p, err := strconv.ParseUint(of.ID, 10, 32)
	switch {
	case of.Verb != messages.VerbRepair:
		err = fmt.Errorf("verb %q: %w: lineage takes %s", of.Verb, run.ErrMalformed, messages.VerbRepair)
	case err != nil || uint32(p) >= a.Partitions: //nolint:gosec // of 32 bits
		err = fmt.Errorf("partition %q: %w: there are %d, from 0", of.ID, run.ErrMalformed, a.Partitions)
	default:
		a.Repaired, err = c.all.Projections.RepairLineage(ctx, uint32(p)) //nolint:gosec // of 32 bits
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil {
		a.Answer = wire.Answer{Note: wire.RepairGoesOn}
		return a
	}
	a.Answer = wire.AnswerOf(unanswered(ctx, err))
	return a
}

// Repair has the lineage of all partitions repaired, one after the other, and returns what
// each relay did. It asks again while a relay is at work.
func (c *Requests) Repair(ctx context.Context, t session.Tenant) (all []wire.Repaired, err error) {
	user, err := c.conn.User(ctx, t)
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
