package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// lateCheck bounds the repeated check of the servers before a stored commit is
// acknowledged.
const lateCheck = 5 * time.Second

// admit reserves the last room of the disk, of an event stream and of blobs for vital
// commits: a run that found no room at its step would be claimed again until it needs
// review. It is called before any data is stored, so also before data goes to blobs.
func (c *Logs) admit(commit commitlog.Commit) error {
	if d, room := c.streams.Capacity.DiskRoom(); room == streams.RoomNone || room == streams.RoomEnds && !journal.IsTerminalOnly(commit.Events) {
		return fmt.Errorf("nats/eventlog: append %d to %s: %w: the disk of the store has %s; %s", commit.Seq, commit.Key, conn.ErrFull, d, streams.RemedyDisk)
	}
	if !c.streams.Capacity.Scarce.Load() {
		return nil
	}
	stream, _, err := c.Place(commit.Key)
	if err != nil {
		return err
	}
	for _, name := range []string{stream, streams.StreamBlob} {
		if f := c.streams.Capacity.Fill(name); f.Room() == streams.RoomEnds && !journal.IsTerminalOnly(commit.Events) {
			return fmt.Errorf("nats/eventlog: append %d to %s: %w: stream %s holds %s, and the rest is reserved for ends of runs; %s",
				commit.Seq, commit.Key, conn.ErrFull, name, f, streams.RemedyOf(name))
		}
	}
	return nil
}

// Append implements commitlog.Log.
func (l *eventLog) Append(ctx context.Context, at commitlog.Position, c commitlog.Commit) (commitlog.Position, error) {
	if err := l.c.admit(c); err != nil {
		return commitlog.Position{}, err
	}
	stream, subject, err := l.c.Place(c.Key)
	if err != nil {
		return commitlog.Position{}, err
	}
	if err := ctx.Err(); err != nil {
		return commitlog.Position{}, err
	}
	if err := l.c.streams.ReadyToStore(ctx); err != nil {
		return commitlog.Position{}, err
	}
	raw, err := Successor(at, c)
	if err != nil {
		return commitlog.Position{}, err
	}
	hash := commitlog.HashOf(raw)
	l.c.recent.appended(hash, c, len(raw))
	w := write{l: l, stream: stream, subject: subject, key: c.Key, at: at, raw: raw, conn: l.c.conn.Incarnation()}
	token, err := w.run(ctx)
	if err != nil {
		if errors.Is(err, conn.ErrFull) {
			l.c.streams.Capacity.Soon()
		}
		return commitlog.Position{}, fmt.Errorf("nats/eventlog: append %d to %s: %w", c.Seq, c.Key, err)
	}
	l.c.streams.Capacity.Appended(stream, len(subject)+len(raw))
	return commitlog.Position{Seq: c.Seq, Token: token, Hash: hash}, nil
}

// Successor returns the bytes to store. It returns an error for a commit that is not a
// valid successor.
func Successor(at commitlog.Position, c commitlog.Commit) ([]byte, error) {
	switch {
	case c.Seq != at.Seq+1 || c.Prev != at.Hash:
		return nil, fmt.Errorf("nats/eventlog: append %d to %s after %d: the commit differs: %w", c.Seq, c.Key, at.Seq, session.ErrForeign)
	case len(c.Events) == 0:
		return nil, fmt.Errorf("nats/eventlog: append %d to %s: no events: %w", c.Seq, c.Key, session.ErrForeign)
	}
	return commitlog.Encode(c)
}

// write is one append in progress.
type write struct {
	l               *eventLog
	stream, subject string
	key             session.Key
	at              commitlog.Position
	raw             []byte
	conn            uint64 // the connection whose server was verified
}

// run sends the bytes, and sends them again if the first attempt leaves the outcome open.
func (w *write) run(ctx context.Context) (uint64, error) {
	always := context.WithoutCancel(ctx)
	token, err := w.send(always, w.at.Token)
	if err != nil {
		patient, cancel := context.WithTimeout(always, conn.RetryBudget)
		defer cancel()
		token, err = w.settle(ctx, patient, err)
	}
	if err != nil {
		return 0, err
	}
	if w.l.c.conn.Incarnation() != w.conn {
		// The connection changed meanwhile, perhaps to servers that store less safely than
		// promised.
		check, cancel := context.WithTimeout(always, lateCheck)
		defer cancel()
		if err := w.l.c.streams.ReadyToStore(check); err != nil {
			return 0, fmt.Errorf("%w: %w", session.ErrUnavailable, err)
		}
	}
	return token, nil
}

// settle continues after a failed attempt, with the same bytes, until their outcome is
// known. Once they may have arrived it does not end with ctx: the outcome has no other
// source.
func (w *write) settle(ctx, patient context.Context, err error) (uint64, error) {
	expect := w.at.Token
	maybe := false // an attempt may have been stored
	for wait := conn.NewBackoff(); ; {
		switch {
		case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrNoResponders):
			// Not sent, or no server there to store it: retry later.
		case !maybe && errors.Is(err, nats.ErrMaxPayload):
			return 0, fmt.Errorf("%w: %w", session.ErrTooLarge, err)
		case !maybe && (errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, conn.ErrFull)):
			return 0, err
		default:
			maybe = maybe || !errors.Is(err, conn.ErrExpectation)
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
		if wait.Sleep(patient) != nil {
			return 0, fmt.Errorf("%w: not settled after %v: %w", session.ErrUnavailable, conn.RetryBudget, err)
		}
		var token uint64
		if token, err = w.send(patient, expect); err == nil {
			return token, nil
		}
	}
}

func (w *write) send(ctx context.Context, expect uint64) (uint64, error) {
	if !protection.AppendCAS {
		return w.l.c.messages.Publish(ctx, &nats.Msg{Subject: w.subject, Data: w.raw})
	}
	return w.l.c.messages.PublishExpecting(ctx, w.subject, expect, nil, w.raw)
}

// resolve reads the log's end from the stream's leader. Settled means that the commit is
// stored, at token, or never will be, with the reason in err. Otherwise the next attempt
// expects the returned sequence: the same one, because the conflict was false or the
// attempt was lost, or the sequence of foreign messages, which do not count as commits but
// are the last of their subject. The receiver is a copy, so that the write itself, which
// seldom needs resolve, stays on its caller's stack.
func (w write) resolve(ctx context.Context, expect uint64) (token, next uint64, settled bool, err error) {
	last, err := w.l.c.messages.LeaderGet(ctx, w.stream, conn.GetRequest{LastBySubject: w.subject})
	switch {
	case errors.Is(err, conn.ErrNoMessage):
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
	for m, err := range w.l.c.Messages(ctx, w.stream, w.subject, w.at.Token, last) {
		if err != nil {
			return 0, expect, false, err
		}
		if bytes.Equal(m.Data, w.raw) {
			return m.Seq, 0, true, nil
		}
		_, _, err := commitlog.Successor(w.key, w.at, m.Data)
		if err == nil || errors.Is(err, session.ErrTooOld) {
			return 0, 0, true, session.ErrConflict
		}
		// The commits in between may be purged: then the message is no successor, and the
		// only evidence of the session.
		if t, ok := TombstoneOf(w.key, m); ok && t.Seq > w.at.Seq {
			return 0, 0, true, session.ErrConflict
		}
	}
	return 0, last.Seq, false, nil
}
