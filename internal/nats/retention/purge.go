package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/core/offload"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/nats/archive"
	"github.com/rathcluster/rath/session"
)

// wait waits for the forks by processes that read a tree before its fence.
func (p *pruning) wait(ctx context.Context) error {
	if p.o.Grace < 0 {
		return nil
	}
	timer := time.NewTimer(p.o.Grace)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// purgeAll reads the logs again, and archives and purges the trees that are unchanged since
// their fences.
func (p *pruning) purgeAll(ctx context.Context) error {
	trees, err := p.c.Archive.Trees(ctx, p.o.Tenant)
	if err != nil {
		return err
	}
	now := map[session.Key]*archive.Tree{}
	for i := range trees {
		for _, s := range trees[i].Sessions {
			now[session.Key{Tenant: trees[i].Tenant, ID: s.ID}] = &trees[i]
		}
	}
	p.parts = partsIn(p.o.Dir)
	var fenced []*Outcome
	for i := range p.out {
		if p.out[i].State == Fenced {
			fenced = append(fenced, &p.out[i])
		}
	}
	_, err = p.each(Archived, len(fenced), func(i int) error {
		out := fenced[i]
		t := now[session.Key{Tenant: out.Tenant, ID: out.Sessions[0].ID}]
		if t == nil {
			out.State, out.Reason, out.File = Failed, "it is gone: another one removed it from the store", ""
			return nil
		}
		if err := p.finish(ctx, out, t); err != nil {
			return p.failed(ctx, out, t, err)
		}
		return nil
	})
	return err
}

// finish archives and purges one tree, or releases it.
func (p *pruning) finish(ctx context.Context, out *Outcome, t *archive.Tree) error {
	fenced, purged := marks(t)
	reason := t.Busy
	if reason == "" && fenced+purged < len(t.Sessions) {
		reason = "it was used meanwhile"
	}
	if purged > 0 && reason != "" {
		out.State, out.Reason = Failed, reason
		return nil
	}
	out.Tree = *t
	if purged == len(t.Sessions) {
		out.State, out.Reason, out.File = Kept, elsewhere, ""
		return nil
	}
	var size int64
	var err error
	if reason == "" {
		size, err = p.archive(ctx, t, out.File)
		if _, bad := errors.AsType[*dossier.Failure](err); bad || errors.Is(err, dossier.ErrTooLarge) || errors.Is(err, offload.ErrBlob) {
			if purged > 0 {
				return err
			}
			reason = err.Error()
		} else if err != nil {
			return err
		}
	}
	if reason != "" {
		if err := p.lift(ctx, t, reason); err != nil {
			return err
		}
		out.State, out.Reason, out.File = Kept, reason, ""
		return nil
	}
	out.Size = size
	// A later session is read from earlier ones, so it is purged first.
	for i, s := range slices.Backward(t.Sessions) {
		if s.Purged {
			continue
		}
		err := p.c.Archive.Purge(ctx, session.Key{Tenant: t.Tenant, ID: s.ID}, s.At)
		// After any other error the session may be purged, so the rest is not released.
		t.Sessions[i].Purged = !errors.Is(err, session.ErrForeign)
		if err != nil {
			return err
		}
		if err := p.step(fmt.Sprintf("purge %d", i)); err != nil {
			return err
		}
	}
	out.State = Archived
	return nil
}
