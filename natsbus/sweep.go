package natsbus

import (
	"context"
	"time"

	"github.com/rathcluster/rath/run"
)

// sweep looks through the open runs and offers those that nobody executes:
// queued ones that nobody took, and those held by an incarnation that does not
// answer. The first pass offers all of them, later ones leave out what this
// relay has offered since the pass before.
func (b *outbox) sweep(ctx context.Context, first bool) {
	began, offered := time.Now(), 0
	asked := map[string]bool{}
	lives := func(incarnation string) bool {
		alive, known := asked[incarnation]
		if !known {
			alive = b.lives(ctx, incarnation)
			asked[incarnation] = alive
		}
		return alive
	}
	for _, s := range b.open.sessions {
		r := s.due(lives)
		if r == nil || !first && time.Since(r.offered) < b.o.Sweep {
			continue
		}
		t := s.offer(r)
		if b.offer(ctx, run.Work{Task: &t}) != nil {
			return // ctx has ended
		}
		offered++
	}
	if offered > 0 {
		b.c.o.Logger.Info("offered open runs again", "stream", b.stream, "open", b.open.len(), "offered", offered, "took", time.Since(began))
	}
	if b.o.Swept != nil {
		b.o.Swept(b.partition, b.open.len(), offered)
	}
}

// lives reports whether an incarnation answers. One that is silent may be
// frozen; its runs are offered, and whoever takes them asks it again.
func (b *outbox) lives(ctx context.Context, incarnation string) bool {
	switch {
	case incarnation == b.o.Incarnation:
		return true
	case b.o.Alive != nil:
		return b.o.Alive(incarnation)
	}
	return b.c.Ping(ctx, incarnation)
}
