package natsbus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/session"
)

const (
	// lateCheck bounds asking the servers again before a commit that is stored
	// already is acknowledged.
	lateCheck = 5 * time.Second
)

// Log returns the event store of sessions: one subject per session in the
// event stream that its id names, one message per commit, large data in blobs.
// It is also a session.Snapshotter. A commit that a stream has no room for is
// ErrFull, see WatchRoom.
func (c *Conn) Log() session.Log {
	l := &eventLog{c}
	return &roomLog{Log: session.Spill(l, c.Blobs, nil), Snapshotter: l, c: c}
}

type eventLog struct{ c *Conn }

// EventSubject is where the commits of a session are stored. It fails for an
// id that no session.Minter made.
func EventSubject(k session.Key) (stream, subject string, err error) {
	if err := k.Valid(); err != nil {
		return "", "", err
	}
	g, p, ok := k.ID.Locate()
	if !ok {
		return "", "", fmt.Errorf("natsbus: session id %q names no event stream: it was not minted", k.ID)
	}
	var b strings.Builder
	b.Grow(len(prefixEvent) + 24 + len(k.Tenant) + len(k.ID))
	b.WriteString(prefixEvent)
	b.WriteString(strconv.FormatUint(uint64(g), 10))
	b.WriteByte('.')
	b.WriteString(strconv.FormatUint(uint64(p), 10))
	b.WriteByte('.')
	b.WriteString(string(k.Tenant))
	b.WriteByte('.')
	b.WriteString(string(k.ID))
	return EventStream(g, p), b.String(), nil
}

// Append implements session.Log.
func (l *eventLog) Append(ctx context.Context, at session.Position, c session.Commit) (session.Position, error) {
	stream, subject, err := l.c.place(c.Key)
	if err != nil {
		return session.Position{}, err
	}
	if err := ctx.Err(); err != nil {
		return session.Position{}, err
	}
	if err := l.c.readyToStore(ctx); err != nil {
		return session.Position{}, err
	}
	raw, err := encode(at, c)
	if err != nil {
		return session.Position{}, err
	}
	w := write{l: l, stream: stream, subject: subject, key: c.Key, at: at, raw: raw, conn: l.c.incarnation()}
	token, err := w.run(ctx)
	if err != nil {
		if errors.Is(err, ErrFull) {
			l.c.rooms.soon()
		}
		return session.Position{}, fmt.Errorf("natsbus: append %d to %s: %w", c.Seq, c.Key, err)
	}
	l.c.rooms.appended(stream, len(subject)+len(raw))
	return session.Position{Seq: c.Seq, Token: token, Hash: session.HashOf(raw)}, nil
}

// encode returns the bytes to store, which are those of a valid successor.
func encode(at session.Position, c session.Commit) ([]byte, error) {
	switch {
	case c.Seq != at.Seq+1 || c.Prev != at.Hash:
		return nil, fmt.Errorf("natsbus: append %d to %s after %d: the commit does not say the same: %w", c.Seq, c.Key, at.Seq, session.ErrForeign)
	case len(c.Events) == 0:
		return nil, fmt.Errorf("natsbus: append %d to %s: no events: %w", c.Seq, c.Key, session.ErrForeign)
	}
	return session.Encode(c)
}

// write is one append on its way.
type write struct {
	l               *eventLog
	stream, subject string
	key             session.Key
	at              session.Position
	raw             []byte
	conn            uint64 // the connection whose server was verified
}

// run sends the bytes, and again what is not settled by the first attempt.
func (w *write) run(ctx context.Context) (uint64, error) {
	always := context.WithoutCancel(ctx)
	token, err := w.send(always, w.at.Token)
	if err != nil {
		patient, cancel := context.WithTimeout(always, patience)
		defer cancel()
		token, err = w.settle(ctx, patient, err)
	}
	if err != nil {
		return 0, err
	}
	if w.l.c.incarnation() != w.conn {
		// The connection changed on the way: perhaps to servers that store
		// less safely than promised.
		check, cancel := context.WithTimeout(always, lateCheck)
		defer cancel()
		if err := w.l.c.readyToStore(check); err != nil {
			return 0, fmt.Errorf("%w: %w", session.ErrUnavailable, err)
		}
	}
	return token, nil
}

// settle goes on after a failed attempt, with the same bytes, until it is
// known what became of them. Once they may have arrived it does not end with
// ctx: nobody else could tell.
func (w *write) settle(ctx, patient context.Context, err error) (uint64, error) {
	expect := w.at.Token
	maybe := false // an attempt may have been stored
	for wait := newBackoff(); ; {
		switch {
		case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrNoResponders):
			// Not sent, or nobody there to store it: later.
		case !maybe && errors.Is(err, nats.ErrMaxPayload):
			return 0, fmt.Errorf("%w: %w", session.ErrTooLarge, err)
		case !maybe && (errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, ErrFull)):
			return 0, err
		default:
			maybe = maybe || !errors.Is(err, errExpectation)
			token, next, settled, resolveErr := w.resolve(patient, expect)
			switch {
			case settled:
				return token, resolveErr
			case resolveErr != nil:
				err = resolveErr
			}
			expect = next
		}
		if !maybe && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if wait.sleep(patient) != nil {
			return 0, fmt.Errorf("%w: not settled after %v: %w", session.ErrUnavailable, patience, err)
		}
		var token uint64
		if token, err = w.send(patient, expect); err == nil {
			return token, nil
		}
	}
}

func (w *write) send(ctx context.Context, expect uint64) (uint64, error) {
	return w.l.c.publishExpecting(ctx, w.subject, expect, nil, w.raw)
}

// resolve asks the stream's leader where the log stands. Settled means that
// the commit is stored, at token, or never will be, which is the error.
// Otherwise the next attempt expects the returned sequence: the one before,
// because the conflict was false or the attempt was lost, or that of foreign
// messages, which do not count as commits but do as last of their subject. It
// takes a copy, so that the write itself, which seldom comes here, stays on its
// caller's stack.
func (w write) resolve(ctx context.Context, expect uint64) (token, next uint64, settled bool, err error) {
	last, err := w.l.c.leaderGet(ctx, w.stream, getRequest{LastBySubject: w.subject})
	switch {
	case errors.Is(err, errNoMessage):
		if w.at.Token == 0 {
			return 0, 0, false, nil
		}
		return 0, 0, true, fmt.Errorf("%w: the log is gone", session.ErrConflict)
	case err != nil:
		return 0, expect, false, err
	case bytes.Equal(last.Data, w.raw):
		return last.Seq, 0, true, nil
	case last.Seq == expect:
		return 0, expect, false, nil
	case last.Seq < w.at.Token:
		return 0, 0, true, fmt.Errorf("%w: it ends before the position", session.ErrConflict)
	}
	for m, err := range w.l.messages(ctx, w.stream, w.subject, w.at.Token, last) {
		if err != nil {
			return 0, expect, false, err
		}
		if bytes.Equal(m.Data, w.raw) {
			return m.Seq, 0, true, nil
		}
		_, _, err := session.Successor(w.key, w.at, m.Data)
		if err == nil || errors.Is(err, session.ErrTooOld) {
			return 0, 0, true, session.ErrConflict
		}
		// The commits between may be gone: then it is no successor, and all
		// that says that the session was there.
		if t, ok := tombstoneOf(w.key, m); ok && t.seq > w.at.Seq {
			return 0, 0, true, session.ErrConflict
		}
	}
	return 0, last.Seq, false, nil
}

// messages yields what the subject holds after a sequence, up to last or a
// little later. Pages come from any replica; what that one does not have yet
// comes from the leader.
func (l *eventLog) messages(ctx context.Context, stream, subject string, after uint64, last stored) iter.Seq2[stored, error] {
	return func(yield func(stored, error) bool) {
		if last.Seq <= after {
			return
		}
		// Right behind: the usual case of a writer or a follower.
		if last.Header.Get(headerExpectLast) == strconv.FormatUint(after, 10) {
			yield(last, nil)
			return
		}
		quiet := time.Now().Add(patience)
		wait := newBackoff()
		for after < last.Seq {
			from := after
			var failed error
			for m, err := range l.c.directPage(ctx, stream, subject, from+1) {
				if err != nil {
					failed = err
					break
				}
				if !yield(m, nil) {
					return
				}
				after = m.Seq
			}
			if after > from {
				quiet, wait = time.Now().Add(patience), newBackoff()
			}
			switch {
			case failed == nil && after > from:
			case failed == nil: // this replica has no more
				m, err := l.c.leaderNext(ctx, stream, subject, from+1)
				if errors.Is(err, errNoMessage) {
					return // purged meanwhile
				}
				if !yield(m, err) || err != nil {
					return
				}
				after = m.Seq
			case !passing(failed) || time.Now().After(quiet) || wait.sleep(ctx) != nil:
				yield(stored{}, failed)
				return
			}
		}
	}
}

// Read implements session.Log. A log that was purged, or is being brought
// back, ends with a *session.ArchivedError.
func (l *eventLog) Read(ctx context.Context, k session.Key, after session.Position) iter.Seq2[session.Entry, error] {
	return func(yield func(session.Entry, error) bool) {
		stream, subject, err := l.c.place(k)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			yield(session.Entry{}, err)
			return
		}
		last, err := l.c.leaderLast(ctx, stream, subject)
		if errors.Is(err, errNoMessage) {
			return
		}
		if err != nil {
			yield(session.Entry{}, fmt.Errorf("natsbus: read %s: %w", k, err))
			return
		}
		at := after
		var grave tombstone // of the commits that would come first
		var whole uint64    // commits that there are when a log was brought back
		for m, err := range l.messages(ctx, stream, subject, after.Token, last) {
			if err == nil {
				var e session.Entry
				e, err = entryOf(k, at, m)
				if errors.Is(err, session.ErrForeign) {
					if t, ok := tombstoneOf(k, m); ok && at == (session.Position{}) {
						grave = t
					}
					continue
				}
				if err == nil {
					at, whole = e.At, restoredOf(m)
					if !yield(e, nil) {
						return
					}
					continue
				}
			}
			yield(session.Entry{}, fmt.Errorf("natsbus: read %s: %w", k, err))
			return
		}
		switch {
		case at.Seq < whole:
			yield(session.Entry{}, &session.ArchivedError{Key: k, Partial: true})
		case grave.why != nil && at == (session.Position{}):
			grave.why.Partial = restoredOf(last) > 0
			yield(session.Entry{}, grave.why)
		}
	}
}

// entryOf reads a message as the successor of a position.
func entryOf(k session.Key, after session.Position, m stored) (session.Entry, error) {
	c, hash, err := session.Successor(k, after, m.Data)
	if err != nil {
		return session.Entry{}, err
	}
	return session.Entry{Commit: c, At: session.Position{Seq: c.Seq, Token: m.Seq, Hash: hash}, Raw: string(m.Data)}, nil
}

// Last implements session.Log. It reads the leader's last message and the one
// before it, which the first one's compare-and-set named; only if the two are
// not a commit and its predecessor it reads the log.
func (l *eventLog) Last(ctx context.Context, k session.Key) (session.Entry, error) {
	stream, subject, err := l.c.place(k)
	if err != nil {
		return session.Entry{}, err
	}
	last, err := l.c.leaderLast(ctx, stream, subject)
	if errors.Is(err, errNoMessage) {
		return session.Entry{}, fmt.Errorf("natsbus: %s: %w", k, session.ErrNotFound)
	}
	if err != nil {
		return session.Entry{}, fmt.Errorf("natsbus: last commit of %s: %w", k, err)
	}
	before, err := l.before(ctx, k, stream, last)
	if restoredOf(last) > 0 {
		err = session.ErrForeign // whether all of it is back, only the whole log tells
	}
	if err == nil {
		var e session.Entry
		if e, err = entryOf(k, before, last); err == nil {
			return e, nil
		}
	}
	if !errors.Is(err, session.ErrForeign) {
		return session.Entry{}, fmt.Errorf("natsbus: last commit of %s: %w", k, err)
	}
	var end session.Entry
	for e, err := range l.Read(ctx, k, session.Position{}) {
		if err != nil {
			return session.Entry{}, err
		}
		end = e
	}
	if end.At.Seq == 0 {
		return session.Entry{}, fmt.Errorf("natsbus: %s: %w", k, session.ErrNotFound)
	}
	return end, nil
}

// before returns the position of the message that a message was appended to.
func (l *eventLog) before(ctx context.Context, k session.Key, stream string, m stored) (session.Position, error) {
	token, err := strconv.ParseUint(m.Header.Get(headerExpectLast), 10, 64)
	if err != nil {
		return session.Position{}, fmt.Errorf("%w: no expected sequence", session.ErrForeign)
	}
	if token == 0 {
		return session.Position{}, nil
	}
	prev, err := l.c.at(ctx, stream, token)
	if errors.Is(err, errNoMessage) {
		return session.Position{}, fmt.Errorf("%w: nothing before it", session.ErrForeign)
	}
	if err != nil {
		return session.Position{}, err
	}
	c, err := session.Decode(prev.Data)
	if err != nil {
		return session.Position{}, err
	}
	if c.Key != k || prev.Subject != m.Subject {
		return session.Position{}, fmt.Errorf("%w: follows a commit of %s", session.ErrForeign, c.Key)
	}
	return session.Position{Seq: c.Seq, Token: token, Hash: session.HashOf(prev.Data)}, nil
}

// fill reads the data that a commit keeps in blobs, for those who read event
// streams and not a session's log.
func (l *eventLog) fill(ctx context.Context, c *session.Commit) error {
	for i := range c.Events {
		e := &c.Events[i]
		if e.Blob.Digest.IsZero() {
			continue
		}
		data, err := readBlob(ctx, l.c.Blobs(c.Tenant), e.Blob)
		if err != nil {
			return fmt.Errorf("%w: event %d (%s) of commit %d of %s: %w", session.ErrBlob, i, e.Kind, c.Seq, c.Key, err)
		}
		e.Data = string(data)
	}
	return nil
}

func readBlob(ctx context.Context, store blob.Store, ref blob.Ref) ([]byte, error) {
	r, err := store.Get(ctx, ref.Digest)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	if int64(len(data)) != ref.Size {
		return nil, fmt.Errorf("%w: %d bytes, want %d", blob.ErrCorrupt, len(data), ref.Size)
	}
	return data, nil
}
