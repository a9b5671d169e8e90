package archive

import (
	"context"
	"errors"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// RemoveResult removes the stored result of a run whose home is purged, the message with a
// sequence of the stream RESULT, and reports whether it did. A home that was restored
// meanwhile keeps it. RemoveResult marks the run's alias first, from which the intake
// learns that the run has ended and the id stays used. A branch has no alias. RemoveResult
// is idempotent. The connection needs the rights of an operator.
func (c *Archive) RemoveResult(ctx context.Context, home session.Key, id run.ID, seq uint64) (bool, error) {
	err := c.logs.Archived(ctx, home)
	a, ok := errors.AsType[*session.ArchivedError](err)
	if !ok || a.Fenced || a.Partial {
		return false, err
	}
	if err := c.markEnded(ctx, home, id); err != nil {
		return false, err
	}
	return c.messages.RemoveMessage(ctx, streams.StreamResult, seq)
}

// markEnded records in the alias of a run, if it belongs to this home, that the run has
// ended.
func (c *Archive) markEnded(ctx context.Context, home session.Key, id run.ID) error {
	subject := eventlog.RunAliasSubject(home.Tenant, id)
	for {
		have, revision, err := eventlog.ReadAlias(ctx, c.logs, subject)
		if err != nil || revision == 0 || have.Session != home.ID || have.Digest == "" {
			return err
		}
		have.Digest, have.Ended = "", have.Digest
		if _, _, stored, err := eventlog.PutAlias(ctx, c.logs, subject, revision, have); err != nil || stored {
			return err
		}
	}
}

// renewResult stores the result of a run whose log was restored. It stores an existing
// result of the same end anew: a prune that found the log purged before may be about to
// remove the message with its former sequence.
func (c *Archive) renewResult(ctx context.Context, t session.Tenant, end messages.Result) error {
	subject := messages.RunSubject(t, end.Run, messages.OnResult)
	m, err := c.messages.LeaderLast(ctx, streams.StreamResult, subject)
	if err == nil {
		have, err := messages.DecodeResult(m.Data)
		if err != nil || have.Chain == nil || *have.Chain != *end.Chain {
			return err
		}
		if _, err = c.messages.PublishExpecting(ctx, subject, m.Seq, nil, m.Data); err == nil || errors.Is(err, conn.ErrFull) {
			return nil
		}
	}
	return c.projections.KeepResult(ctx, t, end, true)
}
