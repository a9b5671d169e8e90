package session_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/internal/sessiontest"
)

func TestMemoryLog(t *testing.T) {
	sessiontest.TestLog(t, func(*testing.T) session.Log { return &session.MemoryLog{} })
}

func TestMemoryLogKeys(t *testing.T) {
	var log session.MemoryLog
	want := []session.Key{{Tenant: "a", ID: "2"}, {Tenant: "a", ID: "s"}, {Tenant: "b", ID: "s"}}
	for _, i := range []int{2, 0, 1} {
		if _, err := log.Append(t.Context(), session.Position{}, sessiontest.Next(want[i], session.Position{}, session.ChunkEvent(session.UserText("x")))); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, log.Keys()); diff != "" {
		t.Error(diff)
	}
	for range log.Read(t.Context(), want[0], session.Position{Seq: math.MaxUint64}) {
		t.Error("there are commits after the last position there could be")
	}
}

func oneStore(s blob.Store) func(session.Tenant) blob.Store {
	return func(session.Tenant) blob.Store { return s }
}

func TestSpillingLog(t *testing.T) {
	sessiontest.TestLog(t, func(*testing.T) session.Log {
		stores := map[session.Tenant]blob.Store{}
		return session.Spill(&session.MemoryLog{}, func(t session.Tenant) blob.Store {
			if stores[t] == nil {
				stores[t] = blob.NewMemory()
			}
			return stores[t]
		}, nil)
	})
	t.Run("small bounds", func(t *testing.T) {
		store := blob.NewMemory()
		sessiontest.TestLog(t, func(*testing.T) session.Log {
			return session.Spill(&session.MemoryLog{}, oneStore(store), &session.SpillOptions{Event: 8, Commit: 100})
		})
	})
}

// TestSpillAnew appends an event that names a blob, as one does that was read from
// a log that had moved its data out. A log that keeps more stores the data.
func TestSpillAnew(t *testing.T) {
	var inner session.MemoryLog
	store := blob.NewMemory()
	log := session.Spill(&inner, oneStore(store), nil)
	k := key("s")
	e := session.ChunkEvent(session.UserText("hello"))
	want := e.Data
	e.Blob = blob.Ref{Digest: blob.Digest{7}, Size: 40 << 10}
	events := []session.Event{e}
	if _, err := log.Append(t.Context(), session.Position{}, sessiontest.Next(k, session.Position{}, events...)); err != nil {
		t.Fatal(err)
	}
	stored, err := inner.Last(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	if got := stored.Commit.Events[0]; got.Data != want || got.Blob != (blob.Ref{}) || store.Len() != 0 {
		t.Errorf("stored with %q and blob %v", got.Data, got.Blob)
	}
	if events[0] != e {
		t.Error("the caller's event was changed")
	}
}

func TestSpill(t *testing.T) {
	var inner session.MemoryLog
	store := blob.NewMemory()
	log := session.Spill(&inner, oneStore(store), nil)
	k := key("s")
	var events []session.Event
	var want []string
	sizes := []int{10, 33 << 10, 32 << 10, 40 << 10, 100}
	for range 30 { // none of these is over the bound of an event
		sizes = append(sizes, 30<<10)
	}
	for i, n := range sizes {
		text := fmt.Sprint(i, strings.Repeat("x", n))
		want = append(want, text)
		events = append(events, session.ChunkEvent(session.UserText(text)))
	}
	pos, err := log.Append(t.Context(), session.Position{}, sessiontest.Next(k, session.Position{}, events...))
	if err != nil {
		t.Fatal(err)
	}
	stored, err := inner.Last(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	if len(stored.Raw) > session.DefaultSpillCommit+8<<10 {
		t.Errorf("the stored commit has %d bytes", len(stored.Raw))
	}
	if session.HashOf([]byte(stored.Raw)) != pos.Hash {
		t.Error("the hash is not over the stored bytes")
	}
	spilled := 0
	for i, e := range stored.Commit.Events {
		inline := e.Blob.Digest.IsZero()
		if inline == (e.Data == "") {
			t.Errorf("event %d has %d bytes of data and blob %v", i, len(e.Data), e.Blob)
		}
		if !inline {
			spilled++
		} else if sizes[i] > 32<<10-100 {
			t.Errorf("event %d of %d bytes is inline", i, sizes[i])
		}
	}
	if small := stored.Commit.Events[0]; small.Data == "" {
		t.Error("a small event was moved out before larger ones")
	}
	if store.Len() != spilled {
		t.Errorf("%d events were moved out, the store has %d blobs", spilled, store.Len())
	}
	last, err := log.Last(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range log.Read(t.Context(), k, session.Position{}) {
		if diff := cmp.Diff(last, e); err != nil || diff != "" {
			t.Errorf("Read: %v\n%s", err, diff)
		}
	}
	var got []string
	for _, e := range last.Commit.Events {
		c, err := session.DecodeChunk(e)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, c.Text())
	}
	if !slices.Equal(got, want) {
		t.Error("the chunks came back changed")
	}
	if _, err := session.Encode(stored.Commit); err != nil {
		t.Errorf("reading changed what the inner log holds: %v", err)
	}
	// What was read can be appended to another log, which decides by itself.
	again := last.Commit
	other := session.Spill(&session.MemoryLog{}, oneStore(blob.NewMemory()), nil)
	if p, err := other.Append(t.Context(), session.Position{}, again); err != nil || p.Hash != pos.Hash {
		t.Errorf("the same commit is at %+v, %v; want hash %s", p, err, pos.Hash.Short())
	}
	if _, ok := log.(session.Snapshotter); !ok {
		t.Error("the log is no Snapshotter any more")
	}
	if _, ok := session.Spill(plain{&inner}, oneStore(store), nil).(session.Snapshotter); ok {
		t.Error("a log without snapshots became a Snapshotter")
	}
}

type plain struct{ session.Log }

// badStore fails, lies or forgets.
type badStore struct {
	blob.Store
	put  error
	lose bool
	data []byte
}

func (b *badStore) Put(ctx context.Context, r io.Reader) (blob.Ref, error) {
	if b.put != nil {
		return blob.Ref{}, b.put
	}
	return b.Store.Put(ctx, r)
}

func (b *badStore) Get(ctx context.Context, d blob.Digest) (io.ReadCloser, error) {
	switch {
	case b.lose:
		return nil, blob.ErrNotFound
	case b.data != nil:
		return io.NopCloser(strings.NewReader(string(b.data))), nil
	}
	return b.Store.Get(ctx, d)
}

func TestSpillFailures(t *testing.T) {
	k := key("s")
	big := session.ChunkEvent(session.UserText(strings.Repeat("x", 40<<10)))
	full := errors.New("disk full")
	for name, c := range map[string]struct {
		store blob.Store
		want  error
	}{
		"put fails":     {&badStore{Store: blob.NewMemory(), put: full}, full},
		"put forgets":   {&badStore{Store: blob.NewMemory(), lose: true}, blob.ErrNotFound},
		"put damages":   {&badStore{Store: blob.NewMemory(), data: []byte("other")}, blob.ErrCorrupt},
		"no store":      {nil, session.ErrTooLarge},
		"ended context": {blob.NewMemory(), context.Canceled},
	} {
		var inner session.MemoryLog
		log := session.Spill(&inner, oneStore(c.store), nil)
		ctx := t.Context()
		if name == "ended context" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			cancel()
		}
		if _, err := log.Append(ctx, session.Position{}, sessiontest.Next(k, session.Position{}, big)); !errors.Is(err, c.want) {
			t.Errorf("%s: Append = %v, want %v", name, err, c.want)
		}
		if len(inner.Keys()) != 0 {
			t.Errorf("%s: the commit was stored without its data", name)
		}
	}
	var inner session.MemoryLog
	store := &badStore{Store: blob.NewMemory()}
	log := session.Spill(&inner, oneStore(store), nil)
	if _, err := log.Append(t.Context(), session.Position{}, sessiontest.Next(k, session.Position{}, big)); err != nil {
		t.Fatal(err)
	}
	check := func(name string, want error) {
		t.Helper()
		_, err := log.Last(t.Context(), k)
		if !errors.Is(err, session.ErrBlob) || !errors.Is(err, want) || !strings.Contains(err.Error(), "commit 1 of default/s") {
			t.Errorf("%s: Last = %v", name, err)
		}
		n := 0
		for _, err := range log.Read(t.Context(), k, session.Position{}) {
			if n++; !errors.Is(err, session.ErrBlob) {
				t.Errorf("%s: Read = %v", name, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: Read yields %d times", name, n)
		}
	}
	store.lose = true
	check("missing", blob.ErrNotFound)
	store.lose, store.data = false, []byte(strings.Repeat("y", 50<<10))
	check("damaged", blob.ErrCorrupt)
}
