// Package remotelog reads the logs of sessions as clients have them: by queries for pages of
// their commits.
package remotelog

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/offload"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Log are logs of sessions. Append is run.ErrNotSupported.
type Log struct {
	// Page returns the commits of a session after a position, nil for the beginning:
	// session.ErrNotFound of a session without any.
	Page func(ctx context.Context, k session.Key, at *messages.CommitPosition) (messages.Commits, error)
}

// Append implements commitlog.Log.
func (l *Log) Append(context.Context, commitlog.Position, commitlog.Commit) (commitlog.Position, error) {
	return commitlog.Position{}, fmt.Errorf("append to a log as a client: %w: submit a task, or use a store", run.ErrNotSupported)
}

// Read implements commitlog.Log. It checks the chain itself.
func (l *Log) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	return func(yield func(commitlog.Entry, error) bool) {
		for {
			var at *messages.CommitPosition
			if after != (commitlog.Position{}) {
				at = PositionOf(after)
			}
			page, err := l.Page(ctx, k, at)
			if errors.Is(err, session.ErrNotFound) {
				return // it has no commits
			}
			if err != nil {
				yield(commitlog.Entry{}, fmt.Errorf("read session %s: %w", k, err))
				return
			}
			for _, s := range page.Commits {
				c, hash, err := commitlog.Successor(k, after, []byte(s.Commit))
				if err != nil {
					yield(commitlog.Entry{}, fmt.Errorf("read session %s: the answer does not follow commit %d: %w", k, after.Seq, err))
					return
				}
				after = commitlog.Position{Seq: c.Seq, Token: s.Token, Hash: hash}
				if !yield(commitlog.Entry{Commit: c, At: after, Raw: s.Commit}, nil) {
					return
				}
			}
			if page.Next == nil || len(page.Commits) == 0 {
				return
			}
		}
	}
}

// Last implements commitlog.Log.
func (l *Log) Last(ctx context.Context, k session.Key) (last commitlog.Entry, err error) {
	for e, err := range l.Read(ctx, k, commitlog.Position{}) {
		if err != nil {
			return commitlog.Entry{}, err
		}
		last = e
	}
	if last.At.Seq == 0 {
		return last, fmt.Errorf("session %s: %w", k, session.ErrNotFound)
	}
	return last, nil
}

// PositionOf returns a position as it travels.
func PositionOf(p commitlog.Position) *messages.CommitPosition {
	return &messages.CommitPosition{Seq: p.Seq, Token: p.Token, Hash: p.Hash.String()}
}

// Position reads a position that travelled, nil for the beginning.
func Position(p *messages.CommitPosition) (commitlog.Position, error) {
	if p == nil {
		return commitlog.Position{}, nil
	}
	hash, err := blob.ParseDigest(p.Hash)
	if err != nil {
		return commitlog.Position{}, fmt.Errorf("position: %w", err)
	}
	return commitlog.Position{Seq: p.Seq, Token: p.Token, Hash: session.Hash(hash)}, nil
}

// Of returns the logs of the sessions of a client's tenant, with the data in blobs.
func Of(c *client.Client) commitlog.Log {
	return offload.New(&Log{func(ctx context.Context, k session.Key, at *messages.CommitPosition) (messages.Commits, error) {
		return c.Sessions.Commits(ctx, k.ID, at)
	}}, func(session.Tenant) blob.Store { return c.Blobs() }, nil)
}
