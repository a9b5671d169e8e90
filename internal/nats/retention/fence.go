package retention

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/archive"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// marks counts the sessions that are fenced and stored, and those that are
// purged.
func marks(t *archive.Tree) (fenced, purged int) {
	for _, s := range t.Sessions {
		switch {
		case s.Purged:
			purged++
		case s.Archived != nil:
			fenced++
		}
	}
	return fenced, purged
}

// elsewhere is why a tree is left alone that another prune has in hand.
const elsewhere = "another prune archives it at the same time"

// fence archives each session of a tree in its log. Where one does not let it
// the tree is let go, and the reason returned. Where another prune was first the
// tree is left to that one, with what is fenced: all go through a tree in the
// same order, so that one of them comes to its end.
func (p *pruning) fence(ctx context.Context, t *archive.Tree, file string) (reason string, err error) {
	store := direct(p.c)
	for i, s := range t.Sessions {
		if s.Archived != nil {
			continue
		}
		k := session.Key{Tenant: t.Tenant, ID: s.ID}
		err := store.Apply(ctx, journal.Signal{To: k, Archive: &commitlog.Archival{By: p.o.By, File: filepath.Base(file)}})
		switch {
		case errors.Is(err, session.ErrArchived):
			return elsewhere, nil
		case errors.Is(err, run.ErrState), errors.Is(err, session.ErrConflict), errors.Is(err, session.ErrTooOld):
			return err.Error(), p.lift(ctx, t, err.Error())
		case err != nil:
			return "", fmt.Errorf("retention: archive %s: %w", k, err)
		}
		if err := p.step(fmt.Sprintf("fence %d", i)); err != nil {
			return "", err
		}
	}
	return "", nil
}

// direct appends to logs beside the nodes that hold them: the compare-and-set
// decides. It folds each session again, so that nothing is remembered.
func direct(c *api.Conn) journal.Store {
	return journal.NewStore(c.Logs.Log(), &journal.StoreOptions{Incarnation: "operator"})
}

// lift lets the sessions of a tree go on that are fenced and not purged. It goes
// the way of a purge, from the last one: if another prune purges the tree
// meanwhile, one of the two comes first there, and the other one stops.
func (p *pruning) lift(ctx context.Context, t *archive.Tree, reason string) error {
	var ids []session.ID
	for _, s := range slices.Backward(t.Sessions) {
		if !s.Purged {
			ids = append(ids, s.ID)
		}
	}
	return goOn(ctx, p.c, t.Tenant, ids, commitlog.Restoration{By: p.o.By, Reason: "not archived: " + reason})
}

// goOn lifts the fences of sessions whose logs are whole. Where none stands, and
// where another one lifts it at the same time, nothing is done. The log's end
// is asked first: an event that says that a session goes on follows only the one
// that archives it.
func goOn(ctx context.Context, c *api.Conn, tenant session.Tenant, ids []session.ID, why commitlog.Restoration) error {
	store := direct(c)
	for _, id := range ids {
		k := session.Key{Tenant: tenant, ID: id}
		if err := c.Logs.Archived(ctx, k); err == nil {
			continue
		} else if !errors.Is(err, session.ErrArchived) {
			return fmt.Errorf("retention: %w", err)
		}
		err := store.Apply(ctx, journal.Signal{To: k, Restore: &why})
		if err != nil && !errors.Is(err, run.ErrState) {
			return fmt.Errorf("retention: let %s go on: %w", k, err)
		}
		// What is appended behind a purge lets nothing go on.
		if a, ok := errors.AsType[*session.ArchivedError](c.Logs.Archived(ctx, k)); ok && !a.Fenced {
			return fmt.Errorf("retention: let %s go on: %w", k, a)
		}
	}
	return nil
}
