package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/offload"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// Log returns the event store of sessions: one subject per session in the
// event stream that its id names, one message per commit, large data in blobs.
// It is also a commitlog.Snapshotter. A commit that a stream has no room for is
// ErrFull, see WatchRoom.
func (c *Logs) Log() commitlog.Log {
	return offload.New(&eventLog{c}, c.Blobs, &offload.Options{Admit: c.admit})
}

// StoredLog is Log without the large data in blobs: commits as they are stored. It is a
// commitlog.Snapshotter, too.
func (c *Logs) StoredLog() commitlog.Log { return &eventLog{c} }

// eventLog is the commitlog.Log of one connection, without offloading.
type eventLog struct{ c *Logs }

// EventSubject returns the stream and subject of a session's commits. It fails for an id
// that no commitlog.IDGenerator made.
func EventSubject(k session.Key) (stream, subject string, err error) {
	if err := k.Valid(); err != nil {
		return "", "", err
	}
	g, p, ok := k.ID.Locate()
	if !ok {
		return "", "", fmt.Errorf("nats/eventlog: session id %q names no event stream: it was not minted", k.ID)
	}
	var b strings.Builder
	b.Grow(len(streams.PrefixEvent) + 24 + len(k.Tenant) + len(k.ID))
	b.WriteString(streams.PrefixEvent)
	b.WriteString(strconv.FormatUint(uint64(g), 10))
	b.WriteByte('.')
	b.WriteString(strconv.FormatUint(uint64(p), 10))
	b.WriteByte('.')
	b.WriteString(string(k.Tenant))
	b.WriteByte('.')
	b.WriteString(string(k.ID))
	return streams.EventStream(g, p), b.String(), nil
}

// Messages yields the messages of the subject after a sequence, up to last.
func (l *Logs) Messages(ctx context.Context, stream, subject string, after uint64, last conn.Message) iter.Seq2[conn.Message, error] {
	// Right behind: the usual case of a writer or a follower.
	if last.Seq > after && last.Header.Get(conn.HeaderExpectLast) == strconv.FormatUint(after, 10) {
		return func(yield func(conn.Message, error) bool) { yield(last, nil) }
	}
	return l.messages.UpTo(ctx, stream, subject, after, last.Seq)
}

// Read implements commitlog.Log. A log that was purged, even during the read, or is being
// restored, ends with a *session.ArchivedError.
func (l *eventLog) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	return func(yield func(commitlog.Entry, error) bool) {
		stream, subject, err := l.c.Place(k)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			yield(commitlog.Entry{}, err)
			return
		}
		last, err := l.c.messages.LeaderLast(ctx, stream, subject)
		if errors.Is(err, conn.ErrNoMessage) {
			return
		}
		if err != nil {
			yield(commitlog.Entry{}, fmt.Errorf("nats/eventlog: read %s: %w", k, err))
			return
		}
		at := after
		var grave tombstone // of the next commits
		var buried uint64   // the sequence of its message
		var whole uint64    // the number of commits of a restored log
		for m, err := range l.c.Messages(ctx, stream, subject, after.Token, last) {
			if err == nil {
				var e commitlog.Entry
				e, err = EntryOf(k, at, m)
				if errors.Is(err, session.ErrForeign) {
					if t, ok := TombstoneOf(k, m); ok && t.Seq > at.Seq {
						grave, buried = t, m.Seq
					}
					continue
				}
				if err == nil {
					at, whole = e.At, RestoredOf(m)
					if !yield(e, nil) {
						return
					}
					continue
				}
			}
			yield(commitlog.Entry{}, fmt.Errorf("nats/eventlog: read %s: %w", k, err))
			return
		}
		purged := grave.Seq > at.Seq
		if purged && at.Seq > 0 {
			// The log still exists if any message comes before the one that looks like a
			// tombstone, which then is no part of it.
			if purged, err = l.first(ctx, stream, subject, buried); err != nil {
				yield(commitlog.Entry{}, fmt.Errorf("nats/eventlog: read %s: %w", k, err))
				return
			}
		}
		switch {
		case at.Seq < whole:
			yield(commitlog.Entry{}, &session.ArchivedError{Key: k, Partial: true})
		case purged:
			grave.why.Partial = RestoredOf(last) > 0
			yield(commitlog.Entry{}, grave.why)
		}
	}
}

// first reports whether a message is the first one left of its subject.
func (l *eventLog) first(ctx context.Context, stream, subject string, seq uint64) (bool, error) {
	m, err := l.c.messages.LeaderNext(ctx, stream, subject, 1)
	if errors.Is(err, conn.ErrNoMessage) {
		return false, nil
	}
	return m.Seq == seq, err
}

// EntryOf reads a message as the successor of a position.
func EntryOf(k session.Key, after commitlog.Position, m conn.Message) (commitlog.Entry, error) {
	c, hash, err := commitlog.Successor(k, after, m.Data)
	if err != nil {
		return commitlog.Entry{}, err
	}
	return commitlog.Entry{Commit: c, At: commitlog.Position{Seq: c.Seq, Token: m.Seq, Hash: hash}, Raw: string(m.Data)}, nil
}

// Last implements commitlog.Log. It reads the leader's last message and the one
// before it, which the first one's compare-and-set named; only if the two are
// not a commit and its predecessor it reads the log.
func (l *eventLog) Last(ctx context.Context, k session.Key) (commitlog.Entry, error) {
	stream, subject, err := l.c.Place(k)
	if err != nil {
		return commitlog.Entry{}, err
	}
	last, err := l.c.messages.LeaderLast(ctx, stream, subject)
	if errors.Is(err, conn.ErrNoMessage) {
		return commitlog.Entry{}, fmt.Errorf("nats/eventlog: %s: %w", k, session.ErrNotFound)
	}
	if err != nil {
		return commitlog.Entry{}, fmt.Errorf("nats/eventlog: last commit of %s: %w", k, err)
	}
	before, err := l.before(ctx, k, stream, last)
	if RestoredOf(last) > 0 {
		err = session.ErrForeign // only the whole log shows whether the restore is complete
	}
	if err == nil {
		var e commitlog.Entry
		if e, err = EntryOf(k, before, last); err == nil && goesOn(e.Commit) && before.Seq > 1 {
			// Behind a tombstone it came too late.
			var purged bool
			if purged, err = l.first(ctx, stream, subject, before.Token); purged {
				err = session.ErrForeign
			}
		}
		if err == nil {
			return e, nil
		}
	}
	if !errors.Is(err, session.ErrForeign) {
		return commitlog.Entry{}, fmt.Errorf("nats/eventlog: last commit of %s: %w", k, err)
	}
	var end commitlog.Entry
	for e, err := range l.Read(ctx, k, commitlog.Position{}) {
		if err != nil {
			return commitlog.Entry{}, err
		}
		end = e
	}
	if end.At.Seq == 0 {
		return commitlog.Entry{}, fmt.Errorf("nats/eventlog: %s: %w", k, session.ErrNotFound)
	}
	return end, nil
}

// goesOn reports whether a commit lifts the fence of its session.
func goesOn(c commitlog.Commit) bool {
	return slices.ContainsFunc(c.Events, func(e session.Event) bool { return e.Kind == session.KindRestored })
}

// before returns the position of the message that a message was appended to.
func (l *eventLog) before(ctx context.Context, k session.Key, stream string, m conn.Message) (commitlog.Position, error) {
	token, err := strconv.ParseUint(m.Header.Get(conn.HeaderExpectLast), 10, 64)
	if err != nil {
		return commitlog.Position{}, fmt.Errorf("%w: no expected sequence", session.ErrForeign)
	}
	if token == 0 {
		return commitlog.Position{}, nil
	}
	prev, err := l.c.messages.At(ctx, stream, token)
	if errors.Is(err, conn.ErrNoMessage) {
		return commitlog.Position{}, fmt.Errorf("%w: nothing before it", session.ErrForeign)
	}
	if err != nil {
		return commitlog.Position{}, err
	}
	c, err := commitlog.Decode(prev.Data)
	if err != nil {
		return commitlog.Position{}, err
	}
	if c.Key != k || prev.Subject != m.Subject {
		return commitlog.Position{}, fmt.Errorf("%w: follows a commit of %s", session.ErrForeign, c.Key)
	}
	return commitlog.Position{Seq: c.Seq, Token: token, Hash: commitlog.HashOf(prev.Data)}, nil
}

// Fill reads the data that a commit has in blobs, for readers of event streams rather than
// of a session's log.
func (l *Logs) Fill(ctx context.Context, c *commitlog.Commit) error {
	return offload.Fill(ctx, c, l.Blobs)
}
