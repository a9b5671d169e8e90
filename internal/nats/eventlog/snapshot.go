package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/session"
)

// A snapshot is one message: the state, and in headers its position.
const (
	headerSeq   = "Rath-Seq"
	headerToken = "Rath-Token"
	headerHash  = "Rath-Hash"

	// maxSnapshot is the maximum size of a state or a page in bytes, below the servers'
	// limit for one message.
	maxSnapshot = 960 << 10
	// saveAttempts bounds how often Save meets another writer.
	saveAttempts = 4
)

var (
	_ commitlog.Log         = (*eventLog)(nil)
	_ commitlog.Snapshotter = (*eventLog)(nil)
)

// SnapSubject returns the subject of a session's newest snapshot.
func SnapSubject(k session.Key) string {
	return streams.PrefixSnap + string(k.Tenant) + "." + string(k.ID)
}

func pageSubject(t session.Tenant, digest string) (string, error) {
	if err := session.ValidID("tenant", string(t)); err != nil {
		return "", err
	}
	if err := session.ValidID("page", digest); err != nil {
		return "", err
	}
	return streams.PrefixPage + string(t) + "." + digest, nil
}

// Save implements commitlog.Snapshotter. A snapshot of an earlier position does
// not replace one of a later position.
func (l *eventLog) Save(ctx context.Context, k session.Key, at commitlog.Position, state []byte) error {
	if err := k.Valid(); err != nil {
		return err
	}
	if len(state) > maxSnapshot {
		return fmt.Errorf("nats/eventlog: snapshot of %s has %d bytes, at most %d are kept: %w", k, len(state), maxSnapshot, session.ErrTooLarge)
	}
	subject := SnapSubject(k)
	look := l.c.messages.Last
	for range saveAttempts {
		have, err := look(ctx, streams.StreamSnap, subject)
		if err != nil && !errors.Is(err, conn.ErrNoMessage) {
			return fmt.Errorf("nats/eventlog: save snapshot of %s: %w", k, err)
		}
		if err == nil {
			if old, err := PositionOf(have.Header); err == nil && old.Seq >= at.Seq {
				return nil
			}
		}
		_, err = l.c.messages.PublishExpecting(ctx, subject, have.Seq, HeaderOf(at), state)
		if err == nil {
			return nil
		}
		if !errors.Is(err, conn.ErrExpectation) {
			return fmt.Errorf("nats/eventlog: save snapshot of %s: %w", k, err)
		}
		look = l.c.messages.LeaderLast // a lagging replica returned outdated data
	}
	return fmt.Errorf("nats/eventlog: save snapshot of %s: %w", k, session.ErrConflict)
}

// HeaderOf is a position as headers of a message.
func HeaderOf(at commitlog.Position) nats.Header {
	return nats.Header{
		headerSeq:   {strconv.FormatUint(at.Seq, 10)},
		headerToken: {strconv.FormatUint(at.Token, 10)},
		headerHash:  {at.Hash.String()},
	}
}

// PositionOf parses the headers that HeaderOf writes.
func PositionOf(h nats.Header) (commitlog.Position, error) {
	var at commitlog.Position
	var err, err2 error
	at.Seq, err = strconv.ParseUint(h.Get(headerSeq), 10, 64)
	at.Token, err2 = strconv.ParseUint(h.Get(headerToken), 10, 64)
	return at, errors.Join(err, err2, at.Hash.UnmarshalText([]byte(h.Get(headerHash))))
}

// Load implements commitlog.Snapshotter.
func (l *eventLog) Load(ctx context.Context, k session.Key) (commitlog.Position, []byte, error) {
	if err := k.Valid(); err != nil {
		return commitlog.Position{}, nil, err
	}
	// A lagging replica has no snapshot or an older one: that costs reading a longer tail.
	// A request to the leader would cost every new session.
	m, err := conn.Retry(ctx, func(ctx context.Context) (conn.Message, error) {
		m, err := l.c.messages.DirectOne(ctx, streams.StreamSnap, conn.APIDirectGet+streams.StreamSnap+"."+SnapSubject(k), nil)
		if errors.Is(err, nats.ErrNoResponders) {
			m, err = l.c.messages.LeaderGet(ctx, streams.StreamSnap, conn.GetRequest{LastBySubject: SnapSubject(k)})
		}
		return m, err
	})
	var at commitlog.Position
	if err == nil {
		if at, err = PositionOf(m.Header); err != nil {
			err = conn.ErrNoMessage // not a snapshot
		}
	}
	if errors.Is(err, conn.ErrNoMessage) {
		err = session.ErrNotFound
	}
	if err != nil {
		return commitlog.Position{}, nil, fmt.Errorf("nats/eventlog: load snapshot of %s: %w", k, err)
	}
	return at, m.Data, nil
}

// SavePage implements commitlog.Snapshotter.
func (l *eventLog) SavePage(ctx context.Context, t session.Tenant, digest string, page []byte) error {
	subject, err := pageSubject(t, digest)
	if err != nil {
		return err
	}
	if len(page) > maxSnapshot {
		return fmt.Errorf("nats/eventlog: page of %d bytes, at most %d are kept: %w", len(page), maxSnapshot, session.ErrTooLarge)
	}
	_, err = l.c.messages.PublishExpecting(ctx, subject, 0, nil, page)
	if err != nil && !errors.Is(err, conn.ErrExpectation) { // ErrExpectation: it exists
		return fmt.Errorf("nats/eventlog: save page %s: %w", digest, err)
	}
	return nil
}

// LoadPage implements commitlog.Snapshotter.
func (l *eventLog) LoadPage(ctx context.Context, t session.Tenant, digest string) ([]byte, error) {
	subject, err := pageSubject(t, digest)
	if err != nil {
		return nil, err
	}
	m, err := l.c.messages.Last(ctx, streams.StreamSnap, subject)
	if errors.Is(err, conn.ErrNoMessage) {
		err = session.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("nats/eventlog: load page %s: %w", digest, err)
	}
	return m.Data, nil
}
