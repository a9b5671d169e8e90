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

// marks counts the fenced, stored sessions and the purged ones.
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

// elsewhere is the reason a tree is kept while another prune handles it.
const elsewhere = "another prune archives it at the same time"

// fence archives each session of a tree in its log. If a log rejects the fence, the tree is
// released, and fence returns the reason. If another prune was first, this one leaves it
// the tree and the fences: all prunes go through a tree in the same order, so that one of
// them finishes.
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

// remove closes and removes the log of a key or of an event, or returns the reason why it is
// kept. A killed prune leaves a closed log, which the next one removes.
func (p *pruning) remove(ctx context.Context, t *archive.Tree) (reason string, err error) {
	k := session.Key{Tenant: t.Tenant, ID: t.Root}
	err = direct(p.c).Apply(ctx, journal.Signal{To: k, CloseKey: &journal.KeyClosed{By: p.o.By}})
	if errors.Is(err, run.ErrState) || errors.Is(err, session.ErrConflict) || errors.Is(err, session.ErrTooOld) {
		return err.Error(), nil
	}
	if err == nil {
		err = p.step("close")
	}
	if err == nil {
		err = p.c.Archive.Remove(ctx, k)
	}
	if errors.Is(err, session.ErrForeign) {
		return elsewhere, nil
	}
	return "", err
}

// direct appends to logs beside the nodes that hold them: the compare-and-set decides. It
// folds each session anew, and caches none.
func direct(c *api.Conn) journal.Store {
	return journal.NewStore(c.Logs.Log(), &journal.StoreOptions{Incarnation: "operator"})
}

// lift resumes the sessions of a tree that are fenced and not purged. It begins with the
// last one, like a purge: if another prune purges the tree meanwhile, one of the two is
// first there, and the other one stops.
func (p *pruning) lift(ctx context.Context, t *archive.Tree, reason string) error {
	var ids []session.ID
	for _, s := range slices.Backward(t.Sessions) {
		if !s.Purged {
			ids = append(ids, s.ID)
		}
	}
	return goOn(ctx, p.c, t.Tenant, ids, commitlog.Restoration{By: p.o.By, Reason: "not archived: " + reason})
}

// goOn lifts the fences of sessions whose logs are complete. It does nothing for a session
// without a fence, or whose fence another process lifts at the same time. It reads the
// log's end first: a restoring event follows only the archiving event.
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
		// An event appended after a purge resumes no session.
		if a, ok := errors.AsType[*session.ArchivedError](c.Logs.Archived(ctx, k)); ok && !a.Fenced {
			return fmt.Errorf("retention: let %s go on: %w", k, a)
		}
	}
	return nil
}
