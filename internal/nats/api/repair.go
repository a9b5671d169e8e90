package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// repairFor is how long a node waits for a repair before it answers that the repair
// continues.
const repairFor = 20 * time.Second

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
