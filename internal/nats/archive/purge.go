package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

const apiPurge = "$JS.API.STREAM.PURGE."

type purgeRequest struct {
	Filter string `json:"filter"`
	Seq    uint64 `json:"seq,omitempty"` // up to this one, which stays
}

// MayPurge returns ErrDenied if the connection may not purge: nodes may not,
// operators may.
func (c *Archive) MayPurge(ctx context.Context) error {
	// No session has such a subject.
	return c.purge(ctx, streams.EventStream(c.streams.Generation(), 0), purgeRequest{Filter: streams.PrefixEvent + "none"})
}

// Purge removes the commits of an archived session except its tombstone, the commit at a
// position, and removes the session's snapshot. It fails with session.ErrForeign, and
// removes none, if another commit is at the position, if that commit does not archive the
// session, or if the session was resumed since. Purge is idempotent. The connection needs
// the rights of an operator: ErrDenied.
func (c *Archive) Purge(ctx context.Context, k session.Key, at commitlog.Position) error {
	stream, subject, err := c.logs.Place(k)
	if err != nil {
		return err
	}
	m, err := c.messages.LeaderAt(ctx, stream, at.Token)
	if err != nil {
		return fmt.Errorf("nats/archive: purge %s: %w", k, err)
	}
	if t, ok := eventlog.TombstoneOf(k, m); !ok || m.Subject != subject || t.Seq != at.Seq || t.Hash != at.Hash {
		return fmt.Errorf("nats/archive: purge %s: message %d of %s is not its commit %d that archives it: %w", k, at.Token, stream, at.Seq, session.ErrForeign)
	}
	if err := c.logs.Archived(ctx, k); err == nil {
		return fmt.Errorf("nats/archive: purge %s: it goes on since its commit %d: %w", k, at.Seq, session.ErrForeign)
	} else if !errors.Is(err, session.ErrArchived) {
		return fmt.Errorf("nats/archive: purge %s: %w", k, err)
	}
	if err := c.purge(ctx, stream, purgeRequest{Filter: subject, Seq: at.Token}); err != nil {
		return fmt.Errorf("nats/archive: purge %s: %w", k, err)
	}
	if err := c.purge(ctx, streams.StreamSnap, purgeRequest{Filter: eventlog.SnapSubject(k)}); err != nil {
		return fmt.Errorf("nats/archive: purge the snapshot of %s: %w", k, err)
	}
	return nil
}

// Remove removes a whole log whose last commit, at a position, closes it: the log of a key or
// of an event. A later fact begins it anew. Remove fails like Purge, and needs its rights.
func (c *Archive) Remove(ctx context.Context, k session.Key) error {
	stream, subject, err := c.logs.Place(k)
	if err != nil {
		return err
	}
	last, err := c.logs.Log().Last(ctx, k)
	if errors.Is(err, session.ErrNotFound) {
		return nil // another one removed it
	}
	if err != nil {
		return fmt.Errorf("nats/archive: remove %s: %w", k, err)
	}
	if all := last.Commit.Events; all[len(all)-1].Kind != journal.KindKeyClosed {
		return fmt.Errorf("nats/archive: remove %s: its commit %d does not close it: %w", k, last.At.Seq, session.ErrForeign)
	}
	if err := c.purge(ctx, streams.StreamSnap, purgeRequest{Filter: eventlog.SnapSubject(k)}); err != nil {
		return fmt.Errorf("nats/archive: remove the snapshot of %s: %w", k, err)
	}
	if err := c.purge(ctx, stream, purgeRequest{Filter: subject, Seq: last.At.Token + 1}); err != nil {
		return fmt.Errorf("nats/archive: remove %s: %w", k, err)
	}
	return nil
}

// purge sends one request, and repeats it during elections.
func (c *Archive) purge(ctx context.Context, stream string, r purgeRequest) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = conn.Retry(ctx, func(ctx context.Context) (struct{}, error) {
		m, err := c.conn.Request(ctx, &nats.Msg{Subject: apiPurge + stream, Data: body})
		if err != nil {
			if errors.Is(err, conn.ErrDenied) {
				return struct{}{}, fmt.Errorf("nats/archive: purge stream %s, which takes the credentials of an operator: %w", stream, err)
			}
			return struct{}{}, fmt.Errorf("nats/archive: purge stream %s: %w", stream, err)
		}
		var reply struct {
			Error   *jetstream.APIError `json:"error"`
			Success bool                `json:"success"`
		}
		if err := json.Unmarshal(m.Data, &reply); err != nil {
			return struct{}{}, fmt.Errorf("nats/archive: purge stream %s: answer: %w", stream, err)
		}
		if reply.Error != nil {
			return struct{}{}, fmt.Errorf("nats/archive: purge stream %s: %w", stream, reply.Error)
		}
		return struct{}{}, nil
	})
	return err
}
