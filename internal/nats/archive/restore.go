package archive

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Restore stores the commits of an archived session again: all of them, in order, of which
// the last one archives it. It reports whether it stored any, which it does not if the log
// is complete, and whether the session was never here before. An existing tombstone has to
// be the last of the commits: otherwise the error is session.ErrForeign, because the
// archive has another history.
//
// Until all commits are stored every reader treats the session as archived, and a further
// Restore resumes where this one stopped. The session stays archived afterwards, but can be
// read; journal.Signal.Restore resumes it.
func (c *Archive) Restore(ctx context.Context, k session.Key, raws []string) (restored, fresh bool, err error) {
	stream, subject, err := c.logs.Place(k)
	if err != nil {
		return false, false, err
	}
	r := restoring{c: c, key: k, stream: stream, subject: subject, raws: raws}
	var at commitlog.Position
	for _, raw := range raws {
		commit, hash, err := commitlog.Successor(k, at, []byte(raw))
		if err != nil {
			return false, false, fmt.Errorf("nats/archive: restore %s: %w", k, err)
		}
		at = commitlog.Position{Seq: commit.Seq, Hash: hash}
	}
	r.end = at
	if _, ok := eventlog.TombstoneOf(k, conn.Message{Data: []byte(raws[len(raws)-1])}); !ok {
		return false, false, fmt.Errorf("nats/archive: restore %s: its last commit does not archive it: %w", k, session.ErrForeign)
	}
	if err := c.streams.ReadyToStore(ctx); err != nil {
		return false, false, err
	}
	if restored, err = r.run(ctx); err != nil {
		return restored, r.fresh, fmt.Errorf("nats/archive: restore %s: %w", k, err)
	}
	return restored, r.fresh, nil
}

// restoring is one session being restored.
type restoring struct {
	c               *Archive
	key             session.Key
	stream, subject string
	raws            []string
	end             commitlog.Position // of the last commit; Token is not used

	// State of the subject.
	next   int    // index of the next commit; -1 for the tombstone
	expect uint64 // sequence of its last message
	fresh  bool   // the session was never here before
}

// run stores the missing commits, one after the other. After an attempt that was not
// answered it reads the subject's state again.
func (r *restoring) run(ctx context.Context) (restored bool, err error) {
	if err := r.look(ctx); err != nil {
		return false, err
	}
	wait, since := conn.NewBackoff(), time.Now()
	for r.next < len(r.raws) {
		restored = true
		err := r.put(ctx)
		if err == nil {
			wait, since = conn.NewBackoff(), time.Now()
			continue
		}
		if errors.Is(err, conn.ErrFull) || ctx.Err() != nil {
			return restored, err
		}
		if time.Since(since) > conn.RetryBudget || wait.Sleep(ctx) != nil {
			return restored, fmt.Errorf("%w: commit %d is not stored after %v: %w", session.ErrUnavailable, r.next+1, conn.RetryBudget, err)
		}
		if err := r.look(ctx); err != nil {
			return restored, err
		}
	}
	return restored, nil
}

// put stores the next message.
func (r *restoring) put(ctx context.Context) error {
	i := r.next
	if i < 0 {
		i = len(r.raws) - 1
	}
	header := nats.Header{eventlog.HeaderRestored: {strconv.FormatUint(r.end.Seq, 10)}}
	if r.fresh {
		header[eventlog.HeaderFresh] = []string{"1"}
	}
	seq, err := r.c.messages.PublishExpecting(ctx, r.subject, r.expect, header, []byte(r.raws[i]))
	if err == nil {
		r.expect = seq
		r.next++
	}
	return err
}

// look reads the state of the subject.
func (r *restoring) look(ctx context.Context) error {
	r.next, r.expect, r.fresh = -1, 0, true
	last, err := r.c.messages.LeaderLast(ctx, r.stream, r.subject)
	if errors.Is(err, conn.ErrNoMessage) {
		return nil
	}
	if err != nil {
		return err
	}
	var at commitlog.Position
	copied := false // the log holds copies
	for m, err := range r.c.logs.Messages(ctx, r.stream, r.subject, 0, last) {
		if err != nil {
			return err
		}
		if t, ok := eventlog.TombstoneOf(r.key, m); ok && at.Seq == 0 && r.next < 0 {
			if t.Seq != r.end.Seq || t.Hash != r.end.Hash {
				return fmt.Errorf("%w: the tombstone here is commit %d, hash %s, and the archive ends with commit %d, hash %s: it is not the archive of the purged session",
					session.ErrForeign, t.Seq, t.Hash, r.end.Seq, r.end.Hash)
			}
			r.next, r.fresh = 0, m.Header.Get(eventlog.HeaderFresh) != ""
			continue
		}
		e, err := eventlog.EntryOf(r.key, at, m)
		if errors.Is(err, session.ErrForeign) {
			continue
		}
		if err != nil {
			return err
		}
		at, copied = e.At, copied || eventlog.RestoredOf(m) > 0
		if at.Seq <= r.end.Seq && e.Raw != r.raws[at.Seq-1] {
			return fmt.Errorf("%w: commit %d here, hash %s, differs from the archive's", session.ErrForeign, at.Seq, at.Hash)
		}
	}
	r.expect = last.Seq
	switch {
	case at.Seq >= r.end.Seq:
		r.next = len(r.raws)
	case at.Seq > 0 && !copied:
		return fmt.Errorf("%w: the log here ends with commit %d and is not archived; the archive ends with commit %d: it belongs to another store", session.ErrForeign, at.Seq, r.end.Seq)
	case r.next >= 0:
		r.next = int(at.Seq) //nolint:gosec // at most len(raws)
	default: // foreign messages only
		r.fresh = true
	}
	return nil
}

// RestoreRun stores the data of a run kept beside its restored log, unless it exists: its
// alias, so that its id is not used again, and, if end is set, its result, signed as it was
// before or not at all. The digest is the task's, as in its run.submitted. An id that
// another run has here stays with that run and its result; the restored run is in its log
// only.
func (c *Archive) RestoreRun(ctx context.Context, k session.Key, id run.ID, digest string, end *messages.Result) error {
	if session.ID(id) != k.ID { // a branch of a fan-out needs no alias
		name := string(k.ID)
		if c.logs.HomeOf(k.Tenant, id) == k.ID {
			name = ""
		}
		have, _, _, err := eventlog.CreateAlias(ctx, c.logs, eventlog.RunAliasSubject(k.Tenant, id), translate.Alias{Session: k.ID, Digest: eventlog.DigestOf(digest, name)})
		if err != nil || have.Session != k.ID {
			return err
		}
	}
	if end == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, conn.RetryBudget)
	defer cancel()
	return c.renewResult(ctx, k.Tenant, *end)
}
