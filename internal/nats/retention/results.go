package retention

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// storedResult is a message of the stream RESULT that may go.
type storedResult struct {
	tenant session.Tenant
	run    run.ID
	home   session.ID // "" for a task that no log took
	seq    uint64
}

// free removes the results of runs whose home is purged, by this prune or by an earlier one
// that was cut off, and the results of tasks that no log claimed, once they are as old as
// due trees of their tenant. It returns their number. It reads the stream once, and keeps
// no state between two prunes.
func (p *pruning) free(ctx context.Context) (int, error) {
	found, err := p.superfluous(ctx)
	if err != nil {
		return 0, err
	}
	removed := make([]bool, len(found))
	_, err = p.each(Freed, len(found), func(i int) (err error) {
		r := &found[i]
		if r.home == "" {
			// Its alias has the code or the cancel, from which the intake recreates the
			// result.
			removed[i], err = p.c.Messages.RemoveMessage(ctx, streams.StreamResult, r.seq)
		} else {
			removed[i], err = p.c.Archive.RemoveResult(ctx, session.Key{Tenant: r.tenant, ID: r.home}, r.run, r.seq)
		}
		if err != nil {
			return fmt.Errorf("retention: remove the result of run %s: %w", r.run, err)
		}
		return p.step("free")
	})
	n := 0
	for _, ok := range removed {
		if ok {
			n++
		}
	}
	return n, err
}

// superfluous reads which results may go.
func (p *pruning) superfluous(ctx context.Context) (found []storedResult, err error) {
	for i := range p.out {
		for _, s := range p.out[i].Sessions {
			if s.Purged {
				p.purged[session.Key{Tenant: p.out[i].Tenant, ID: s.ID}] = true
			}
		}
	}
	err = p.c.Logs.DumpStream(ctx, streams.StreamResult, false, func(m eventlog.Stored) error {
		tenant, id, _, ok := messages.ParseRunSubject(m.Subject)
		if !ok || p.o.Tenant != "" && tenant != p.o.Tenant {
			return nil
		}
		r, err := messages.DecodeResult(m.Data)
		if err != nil {
			return nil // a later release wrote it
		}
		s := storedResult{tenant: tenant, run: id, seq: m.Seq}
		if r.Chain != nil {
			s.home = r.Chain.Session
			if !p.purged[session.Key{Tenant: tenant, ID: s.home}] {
				return nil
			}
		} else if keep, ok := p.o.Keep(tenant); !ok || p.now.Sub(m.Time) < keep {
			return nil
		}
		found = append(found, s)
		return nil
	})
	return found, err
}
