// Package offload keeps large event data of a commitlog.Log in a blob store.
package offload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/session"
)

// Bounds of the data that a log from [New] keeps inside a commit.
const (
	// DefaultEvent is the maximum size of an event's data in a commit, in bytes.
	DefaultEvent = 32 << 10
	// DefaultCommit is the size of a commit, in bytes, above which its largest events
	// are offloaded.
	DefaultCommit = 512 << 10
)

// Options configure [New]; nil means the defaults.
type Options struct {
	Event  int // maximum size of an event's data in a commit, in bytes; 0 is DefaultEvent
	Commit int // bytes that a commit may have; 0 is DefaultCommit
	// Admit, if set, is called before data is moved out of a commit. A rejected commit
	// is not appended, and leaves no blobs in the blob store.
	Admit func(c commitlog.Commit) error
}

// ErrBlob is returned when the data of an event is missing from the blob store
// or is damaged there. It also wraps the store's error.
var ErrBlob = errors.New("offload: event data cannot be read from the blob store")

// New returns a log that keeps large event data in a blob store: each event over one
// bound, and the largest events until the commit is under another. The data is stored,
// and read back from the store, before the commit that names it is appended. Commits
// are hashed as they are stored, with the name in place of the data. Readers of the
// returned log get the data.
//
// blobs returns the store of a tenant. If inner is a commitlog.Snapshotter, so is
// the log that New returns.
func New(inner commitlog.Log, blobs func(session.Tenant) blob.Store, o *Options) commitlog.Log {
	l := &log{Log: inner, blobs: blobs, event: DefaultEvent, commit: DefaultCommit}
	if o != nil && o.Event > 0 {
		l.event = o.Event
	}
	if o != nil && o.Commit > 0 {
		l.commit = o.Commit
	}
	if o != nil {
		l.admit = o.Admit
	}
	if snap, ok := inner.(commitlog.Snapshotter); ok {
		return struct {
			*log
			commitlog.Snapshotter
		}{l, snap}
	}
	return l
}

type log struct {
	commitlog.Log
	blobs         func(session.Tenant) blob.Store
	event, commit int
	admit         func(c commitlog.Commit) error // nil admits all
}

// overhead is the approximate size of an event without its data.
const overhead = 160

// fits reports whether all data fit into the commit and no event names a blob yet.
func (l *log) fits(events []session.Event) bool {
	total := 0
	for i := range events {
		e := &events[i]
		if len(e.Data) > l.event || e.Blob != (blob.Ref{}) {
			return false
		}
		total += len(e.Data) + overhead
	}
	return total <= l.commit
}

// Append implements commitlog.Log.
func (l *log) Append(ctx context.Context, at commitlog.Position, c commitlog.Commit) (commitlog.Position, error) {
	if l.fits(c.Events) {
		return l.Log.Append(ctx, at, c)
	}
	if l.admit != nil {
		if err := l.admit(c); err != nil {
			return commitlog.Position{}, err
		}
	}
	c.Events = slices.Clone(c.Events)
	total := 0
	var inline []int // indices of events that keep their data, largest last
	for i := range c.Events {
		e := &c.Events[i]
		e.Blob = blob.Ref{} // this log decides about offloading, not the log that the event was read from
		if len(e.Data) > l.event {
			if err := l.move(ctx, c.Key, e); err != nil {
				return commitlog.Position{}, err
			}
		} else {
			inline = append(inline, i)
		}
		total += len(e.Data) + overhead
	}
	slices.SortStableFunc(inline, func(a, b int) int { return len(c.Events[a].Data) - len(c.Events[b].Data) })
	for total > l.commit && len(inline) > 0 {
		e := &c.Events[inline[len(inline)-1]]
		inline = inline[:len(inline)-1]
		if len(e.Data) <= overhead {
			break // moving it out would save no space
		}
		total -= len(e.Data)
		if err := l.move(ctx, c.Key, e); err != nil {
			return commitlog.Position{}, err
		}
	}
	return l.Log.Append(ctx, at, c)
}

// move moves an event's data into the blob store and checks that it is stored.
func (l *log) move(ctx context.Context, k session.Key, e *session.Event) error {
	if s, err := canonical.Marshal(json.RawMessage(e.Data)); err != nil || s != e.Data {
		return fmt.Errorf("offload: event %s of %s: its data is not canonical JSON: encode it with Marshal", e.Kind, k)
	}
	store := l.blobs(k.Tenant)
	if store == nil {
		return fmt.Errorf("offload: event %s of %s has %d bytes and tenant %s has no blob store: %w", e.Kind, k, len(e.Data), k.Tenant, session.ErrTooLarge)
	}
	want := blob.Ref{Digest: blob.Sum([]byte(e.Data)), Size: int64(len(e.Data))}
	ref, err := store.Put(ctx, bytes.NewReader([]byte(e.Data)))
	if err == nil && ref != want {
		err = fmt.Errorf("stored as %s (%d bytes): %w", ref.Digest.Short(), ref.Size, blob.ErrCorrupt)
	}
	if err == nil {
		_, err = fetch(ctx, store, want)
	}
	if err != nil {
		return fmt.Errorf("offload: store %d bytes of event %s of %s: %w", len(e.Data), e.Kind, k, err)
	}
	e.Data, e.Blob = "", want
	return nil
}

func fetch(ctx context.Context, store blob.Store, ref blob.Ref) (string, error) {
	if store == nil {
		return "", errors.New("the tenant has no blob store")
	}
	rc, err := store.Get(ctx, ref.Digest)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(rc, ref.Size+1))
	if err := errors.Join(err, rc.Close()); err != nil {
		return "", err
	}
	if int64(len(data)) != ref.Size || blob.Sum(data) != ref.Digest {
		return "", fmt.Errorf("%d bytes, want %d: %w", len(data), ref.Size, blob.ErrCorrupt)
	}
	return string(data), nil
}

// Fill restores the data in blobs into the events of c, up to the first event whose
// data cannot be read; the error then wraps [ErrBlob].
func Fill(ctx context.Context, c *commitlog.Commit, blobs func(session.Tenant) blob.Store) error {
	for i := range c.Events {
		e := &c.Events[i]
		if e.Blob.Digest.IsZero() {
			continue
		}
		data, err := fetch(ctx, blobs(c.Tenant), e.Blob)
		if err != nil {
			return fmt.Errorf("%w: commit %d of %s, event %d (%s), blob %s: %w", ErrBlob, c.Seq, c.Key, i, e.Kind, e.Blob.Digest.Short(), err)
		}
		e.Data = data
	}
	return nil
}

// fill is Fill for an entry whose events the inner log may share.
func (l *log) fill(ctx context.Context, e commitlog.Entry) (commitlog.Entry, error) {
	if !slices.ContainsFunc(e.Commit.Events, func(ev session.Event) bool { return !ev.Blob.Digest.IsZero() }) {
		return e, nil
	}
	e.Commit.Events = slices.Clone(e.Commit.Events)
	if err := Fill(ctx, &e.Commit, l.blobs); err != nil {
		return commitlog.Entry{}, err
	}
	return e, nil
}

// Read implements commitlog.Log.
func (l *log) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	return func(yield func(commitlog.Entry, error) bool) {
		for e, err := range l.Log.Read(ctx, k, after) {
			if err == nil {
				e, err = l.fill(ctx, e)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Last implements commitlog.Log.
func (l *log) Last(ctx context.Context, k session.Key) (commitlog.Entry, error) {
	e, err := l.Log.Last(ctx, k)
	if err != nil {
		return commitlog.Entry{}, err
	}
	return l.fill(ctx, e)
}
