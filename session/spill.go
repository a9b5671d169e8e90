package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/rathcluster/rath/blob"
)

// Bounds of what a spilling log keeps inside a commit.
const (
	// DefaultSpillEvent is the most bytes of data that one event keeps.
	DefaultSpillEvent = 32 << 10
	// DefaultSpillCommit is the most bytes that a commit may have before its
	// largest events are moved out.
	DefaultSpillCommit = 512 << 10
)

// SpillOptions configure [Spill]; nil means the defaults.
type SpillOptions struct {
	Event  int // bytes of data that one event keeps; 0 is DefaultSpillEvent
	Commit int // bytes that a commit may have; 0 is DefaultSpillCommit
}

// ErrBlob is returned by the Read and Last of a spilling log when the data of
// an event is missing from the blob store or is damaged there. It also wraps
// the store's error.
var ErrBlob = errors.New("session: event data cannot be read from the blob store")

// Spill returns a log that keeps large event data in a blob store: each event
// over one bound, and the largest events until the commit is under another.
// The data is stored, and read back from the store, before the commit that
// names it is appended. Commits are hashed as they are stored, with the name
// in place of the data; readers of the returned log find the data again.
//
// blobs returns the store of a tenant. If log is a [Snapshotter], so is what
// Spill returns.
func Spill(log Log, blobs func(Tenant) blob.Store, o *SpillOptions) Log {
	s := &spill{Log: log, blobs: blobs, event: DefaultSpillEvent, commit: DefaultSpillCommit}
	if o != nil && o.Event > 0 {
		s.event = o.Event
	}
	if o != nil && o.Commit > 0 {
		s.commit = o.Commit
	}
	if snap, ok := log.(Snapshotter); ok {
		return struct {
			*spill
			Snapshotter
		}{s, snap}
	}
	return s
}

type spill struct {
	Log
	blobs         func(Tenant) blob.Store
	event, commit int
}

// overhead is about what an event needs besides its data.
const overhead = 160

// whole reports whether all data stays in the commit, and names no blob yet.
func (s *spill) whole(events []Event) bool {
	total := 0
	for i := range events {
		e := &events[i]
		if len(e.Data) > s.event || e.Blob != (blob.Ref{}) {
			return false
		}
		total += len(e.Data) + overhead
	}
	return total <= s.commit
}

// Append implements Log.
func (s *spill) Append(ctx context.Context, at Position, c Commit) (Position, error) {
	if s.whole(c.Events) {
		return s.Log.Append(ctx, at, c)
	}
	c.Events = slices.Clone(c.Events)
	total := 0
	var inline []int // indices of events that are still whole, largest last
	for i := range c.Events {
		e := &c.Events[i]
		e.Blob = blob.Ref{} // where the data lies is this store's decision, not that of the log it was read from
		if len(e.Data) > s.event {
			if err := s.move(ctx, c.Key, e); err != nil {
				return Position{}, err
			}
		} else {
			inline = append(inline, i)
		}
		total += len(e.Data) + overhead
	}
	slices.SortStableFunc(inline, func(a, b int) int { return len(c.Events[a].Data) - len(c.Events[b].Data) })
	for total > s.commit && len(inline) > 0 {
		e := &c.Events[inline[len(inline)-1]]
		inline = inline[:len(inline)-1]
		if len(e.Data) <= overhead {
			break // moving it out would save nothing
		}
		total -= len(e.Data)
		if err := s.move(ctx, c.Key, e); err != nil {
			return Position{}, err
		}
	}
	return s.Log.Append(ctx, at, c)
}

// move puts an event's data into the blob store and checks that it is there.
func (s *spill) move(ctx context.Context, k Key, e *Event) error {
	if !canonical(e.Data) {
		return fmt.Errorf("session: event %s of %s: its data is %w: encode it with Marshal", e.Kind, k, errCanonical)
	}
	store := s.blobs(k.Tenant)
	if store == nil {
		return fmt.Errorf("session: event %s of %s has %d bytes and tenant %s has no blob store: %w", e.Kind, k, len(e.Data), k.Tenant, ErrTooLarge)
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
		return fmt.Errorf("session: store %d bytes of event %s of %s: %w", len(e.Data), e.Kind, k, err)
	}
	e.Data, e.Blob = "", want
	return nil
}

func fetch(ctx context.Context, store blob.Store, ref blob.Ref) (string, error) {
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

// fill puts the data of spilled events back.
func (s *spill) fill(ctx context.Context, e Entry) (Entry, error) {
	own := false
	for i, ev := range e.Commit.Events {
		if ev.Blob.Digest.IsZero() {
			continue
		}
		var data string
		err := fmt.Errorf("tenant %s has no blob store", e.Commit.Tenant)
		if store := s.blobs(e.Commit.Tenant); store != nil {
			data, err = fetch(ctx, store, ev.Blob)
		}
		if err != nil {
			return Entry{}, fmt.Errorf("%w: commit %d of %s, event %d (%s), blob %s: %w",
				ErrBlob, e.Commit.Seq, e.Commit.Key, i, ev.Kind, ev.Blob.Digest.Short(), err)
		}
		if !own { // the inner log may keep these events
			e.Commit.Events, own = slices.Clone(e.Commit.Events), true
		}
		e.Commit.Events[i].Data = data
	}
	return e, nil
}

// Read implements Log.
func (s *spill) Read(ctx context.Context, k Key, after Position) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range s.Log.Read(ctx, k, after) {
			if err == nil {
				e, err = s.fill(ctx, e)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Last implements Log.
func (s *spill) Last(ctx context.Context, k Key) (Entry, error) {
	e, err := s.Log.Last(ctx, k)
	if err != nil {
		return Entry{}, err
	}
	return s.fill(ctx, e)
}
