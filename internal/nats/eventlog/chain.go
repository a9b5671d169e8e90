package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// Chain separates the commits of an event stream from foreign bytes, the same ones that
// every reader of a log skips. It reads the stream in order and remembers the positions of
// its logs; it looks up positions that it has forgotten or never had. It is not safe for
// concurrent use.
type Chain struct {
	l      *eventLog
	stream string
	prefix string // of the partition's subjects

	// Copies selects the commits of restored logs to return; the others are skipped.
	Copies Copies

	// Two generations of positions: a full young one becomes the old one, whose positions
	// move to the young one when they are used.
	young, old map[string]commitlog.Position

	// Rest fires when no message was read for chainRest: then call Forget.
	Rest *time.Timer
}

// Copies are commits that were stored again when an archived session was restored.
type Copies uint8

const (
	NoCopies    Copies = iota // another reader has returned them already
	FreshCopies               // copies in logs that had never been in this store
	AllCopies
)

// takes reports whether a message is returned, which depends on whether it is a copy.
func (c Copies) takes(m conn.Message) bool {
	return RestoredOf(m) == 0 || c == AllCopies || c == FreshCopies && m.Header.Get(HeaderFresh) != ""
}

// chainSize bounds the positions of one generation: so many sessions may be written
// concurrently before a position is read from the stream again, which takes one request.
const chainSize = 4 << 10

// chainRest is the idle time after which a chain forgets the positions of logs: unused
// sessions stay in memory for as long.
const chainRest = time.Minute

// refused marks a log that holds a commit of a later release: this release cannot verify
// its successors.
var refused = commitlog.Position{Seq: 1<<64 - 1}

// NewChain returns the chain of a partition, without any position yet. Its Rest is running;
// the caller stops it.
func NewChain(c *Logs, generation, partition uint32) *Chain {
	return &Chain{
		l: &eventLog{c}, stream: streams.EventStream(generation, partition),
		prefix: fmt.Sprintf("%s%d.%d.", streams.PrefixEvent, generation, partition),
		young:  map[string]commitlog.Position{},
		Rest:   time.NewTimer(chainRest),
	}
}

// Forget forgets the positions of logs, and the commits that this process has decoded last.
func (h *Chain) Forget() {
	h.young, h.old = map[string]commitlog.Position{}, nil
	h.l.c.recent.forget()
}

// Next returns a message as a commit; ok is false for a message that readers of the log
// skip. It does not load the data of spilled events, and the stored bytes are the
// message's. An error is a failure to read the stream, except session.ErrTooOld, which is
// returned once per log.
func (h *Chain) Next(ctx context.Context, m conn.Message) (e commitlog.Entry, ok bool, err error) {
	h.Rest.Reset(chainRest)
	at, known := h.young[m.Subject]
	if !known {
		at, known = h.old[m.Subject]
	}
	if m.Header.Get(conn.HeaderExpectLast) == "0" { // a log that was removed has begun anew
		known = false
	}
	var k session.Key
	if known {
		k, _ = h.named(m.Subject) // it was looked at before
	} else if k, ok = h.Key(m.Subject); !ok {
		return e, false, nil
	}
	if !h.Copies.takes(m) {
		// Messages behind the tombstone are no part of the log that follows.
		delete(h.young, m.Subject)
		delete(h.old, m.Subject)
		return e, false, nil
	}
	if h.Copies == FreshCopies && RestoredOf(m) > 0 && m.Header.Get(conn.HeaderExpectLast) == "0" {
		h.keep(m.Subject, commitlog.Position{}) // the tombstone that such a log begins with
		return e, false, nil
	}
	switch {
	case at == refused:
		return e, false, nil
	case known:
		e, err = h.successor(k, at, m)
	default:
		e, at, err = h.find(ctx, k, m)
	}
	switch {
	case errors.Is(err, session.ErrTooOld):
		h.keep(m.Subject, refused)
		return e, false, fmt.Errorf("nats/eventlog: %s of stream %s: %w", k, h.stream, err)
	case errors.Is(err, session.ErrForeign):
		h.keep(m.Subject, at)
		return e, false, nil
	case err != nil:
		return e, false, fmt.Errorf("nats/eventlog: %s of stream %s: %w", k, h.stream, err)
	}
	h.keep(m.Subject, e.At)
	if h.Copies == AllCopies && e.At.Seq > at.Seq+1 {
		h.keep(m.Subject, commitlog.Position{}) // a tombstone; restored commits follow it
	}
	return e, true, nil
}

// PatientlyNext is Next, retried within the budget of conn.Retry.
func (h *Chain) PatientlyNext(ctx context.Context, m conn.Message) (e commitlog.Entry, ok bool, err error) {
	e, err = conn.Retry(ctx, func(ctx context.Context) (commitlog.Entry, error) {
		e, ok, err = h.Next(ctx, m)
		return e, err
	})
	return e, ok, err
}

// Facts is journal.Facts of a commit that Next returned, decoded once for all readers in
// this process. Readers must not modify them.
func (h *Chain) Facts(e commitlog.Entry) []journal.Fact { return h.l.c.recent.facts(e) }

// Fill loads the data of a commit's events that lies in blobs, retried within the
// budget of conn.Retry.
func (h *Chain) Fill(ctx context.Context, e *commitlog.Entry) error {
	_, err := conn.Retry(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, h.l.c.Fill(ctx, &e.Commit) })
	return err
}

// FillThere is Fill for a relay, which continues without data that is gone and logs that.
// It fails while it is unknown whether the data is gone.
func (h *Chain) FillThere(ctx context.Context, e *commitlog.Entry) error {
	err := h.Fill(ctx, e)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil || conn.IsTransient(err):
		return err
	}
	h.l.c.conn.Logger.Error("spilled data of a commit is gone", "stream", h.stream, "seq", e.At.Token, "err", err)
	return nil
}

// find reads a message of a log without a known position, and also returns the position
// before it.
func (h *Chain) find(ctx context.Context, k session.Key, m conn.Message) (commitlog.Entry, commitlog.Position, error) {
	if e, err := h.successor(k, commitlog.Position{}, m); err == nil && e.Commit.Seq == 1 && m.Header.Get(conn.HeaderExpectLast) == "0" {
		return e, commitlog.Position{}, nil
	}
	if t, ok := TombstoneOf(k, m); ok {
		first, err := h.first(ctx, m.Subject)
		if err != nil && !errors.Is(err, conn.ErrNoMessage) {
			return commitlog.Entry{}, commitlog.Position{}, err
		}
		if err != nil || first.Seq >= m.Seq { // earlier messages are purged, or even the message itself
			return commitlog.Entry{Commit: t.commit, At: t.at(m)}, commitlog.Position{}, nil
		}
	}
	if before, err := h.l.before(ctx, k, h.stream, m); err == nil {
		if e, err := h.successor(k, before, m); !errors.Is(err, session.ErrForeign) {
			return e, before, err
		}
	} else if !errors.Is(err, session.ErrForeign) && !errors.Is(err, session.ErrTooOld) {
		return commitlog.Entry{}, before, err
	}
	// The message, or the one before it, is not a commit in its place. Only the whole log
	// shows which.
	var before commitlog.Position
	for e, err := range h.l.Read(ctx, k, commitlog.Position{}) {
		if errors.Is(err, session.ErrArchived) {
			first, err := h.first(ctx, m.Subject)
			if err != nil && !errors.Is(err, conn.ErrNoMessage) {
				return commitlog.Entry{}, before, err
			}
			if t, ok := TombstoneOf(k, first); ok && h.Copies == NoCopies {
				before = t.at(first)
			}
			break
		}
		if err != nil {
			return commitlog.Entry{}, before, err
		}
		if e.At.Token >= m.Seq {
			break
		}
		before = e.At
	}
	e, err := h.successor(k, before, m)
	return e, before, err
}

// first returns the oldest message that a subject holds.
func (h *Chain) first(ctx context.Context, subject string) (conn.Message, error) {
	return h.l.c.messages.LeaderGet(ctx, h.stream, conn.GetRequest{Seq: 1, NextBySubject: subject})
}

func (h *Chain) successor(k session.Key, after commitlog.Position, m conn.Message) (commitlog.Entry, error) {
	c, hash, err := h.l.c.recent.successor(k, after, m.Data)
	if err != nil {
		return commitlog.Entry{}, err
	}
	return commitlog.Entry{Commit: c, At: commitlog.Position{Seq: c.Seq, Token: m.Seq, Hash: hash}}, nil
}

func (h *Chain) keep(subject string, at commitlog.Position) {
	if len(h.young) >= chainSize {
		h.old, h.young = h.young, make(map[string]commitlog.Position, chainSize)
	}
	h.young[subject] = at
}

// named parses the session in a subject of the partition.
func (h *Chain) named(subject string) (session.Key, bool) {
	rest, ok := strings.CutPrefix(subject, h.prefix)
	if !ok {
		return session.Key{}, false
	}
	tenant, id, ok := strings.Cut(rest, ".")
	return session.Key{Tenant: session.Tenant(tenant), ID: session.ID(id)}, ok
}

// Key reads the session from a subject of the partition.
func (h *Chain) Key(subject string) (session.Key, bool) {
	k, ok := h.named(subject)
	if !ok {
		return k, false
	}
	stream, _, err := EventSubject(k)
	return k, err == nil && stream == h.stream
}
