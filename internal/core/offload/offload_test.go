package offload_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/offload"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/session"
)

var k = session.Key{Tenant: session.DefaultTenant, ID: "s"}

func oneStore(s blob.Store) func(session.Tenant) blob.Store {
	return func(session.Tenant) blob.Store { return s }
}

func TestLog(t *testing.T) {
	sessiontest.TestLog(t, func(*testing.T) commitlog.Log {
		stores := map[session.Tenant]blob.Store{}
		return offload.New(&commitlog.Memory{}, func(t session.Tenant) blob.Store {
			if stores[t] == nil {
				stores[t] = blob.NewMemory()
			}
			return stores[t]
		}, nil)
	})
	t.Run("small bounds", func(t *testing.T) {
		store := blob.NewMemory()
		sessiontest.TestLog(t, func(*testing.T) commitlog.Log {
			return offload.New(&commitlog.Memory{}, oneStore(store), &offload.Options{Event: 8, Commit: 100})
		})
	})
}

// TestReadEvent appends an event that names a blob, as an event does that was read
// from a log that had moved its data out. A log with a larger bound stores the data.
func TestReadEvent(t *testing.T) {
	var inner commitlog.Memory
	store := &shelf{blob.NewMemory(), map[blob.Digest]bool{}}
	log := offload.New(&inner, oneStore(store), nil)
	e := session.ChunkEvent(session.UserText("hello"))
	want := e.Data
	e.Blob = blob.Ref{Digest: blob.Digest{7}, Size: 40 << 10}
	events := []session.Event{e}
	must.Get(log.Append(t.Context(), commitlog.Position{}, sessiontest.Next(k, commitlog.Position{}, events...)))(t)
	stored := must.Get(inner.Last(t.Context(), k))(t)
	if got := stored.Commit.Events[0]; got.Data != want || got.Blob != (blob.Ref{}) || len(store.has) != 0 {
		t.Errorf("stored with %q and blob %v", got.Data, got.Blob)
	}
	if events[0] != e {
		t.Error("the caller's event was changed")
	}
}

func TestLargeEvents(t *testing.T) {
	var inner commitlog.Memory
	store := &shelf{blob.NewMemory(), map[blob.Digest]bool{}}
	log := offload.New(&inner, oneStore(store), nil)
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
	pos := must.Get(log.Append(t.Context(), commitlog.Position{}, sessiontest.Next(k, commitlog.Position{}, events...)))(t)
	stored := must.Get(inner.Last(t.Context(), k))(t)
	if len(stored.Raw) > offload.DefaultCommit+8<<10 {
		t.Errorf("the stored commit has %d bytes", len(stored.Raw))
	}
	if commitlog.HashOf([]byte(stored.Raw)) != pos.Hash {
		t.Error("the hash is not over the stored bytes")
	}
	moved := 0
	for i, e := range stored.Commit.Events {
		inline := e.Blob.Digest.IsZero()
		if inline == (e.Data == "") {
			t.Errorf("event %d has %d bytes of data and blob %v", i, len(e.Data), e.Blob)
		}
		if !inline {
			moved++
		} else if sizes[i] > 32<<10-100 {
			t.Errorf("event %d of %d bytes is inline", i, sizes[i])
		}
	}
	if small := stored.Commit.Events[0]; small.Data == "" {
		t.Error("a small event was moved out before larger ones")
	}
	if len(store.has) != moved {
		t.Errorf("%d events were moved out, the store has %d blobs", moved, len(store.has))
	}
	last := must.Get(log.Last(t.Context(), k))(t)
	for e, err := range log.Read(t.Context(), k, commitlog.Position{}) {
		if diff := cmp.Diff(last, e); err != nil || diff != "" {
			t.Errorf("Read: %v\n%s", err, diff)
		}
	}
	var got []string
	for _, e := range last.Commit.Events {
		c := must.Get(session.DecodeChunk(e))(t)
		got = append(got, c.Text())
	}
	if !slices.Equal(got, want) {
		t.Error("the chunks came back changed")
	}
	if _, err := commitlog.Encode(stored.Commit); err != nil {
		t.Errorf("reading changed what the inner log holds: %v", err)
	}
	// A commit that was read can be appended to another log, which offloads by its own
	// bounds.
	again := last.Commit
	other := offload.New(&commitlog.Memory{}, oneStore(blob.NewMemory()), nil)
	if p, err := other.Append(t.Context(), commitlog.Position{}, again); err != nil || p.Hash != pos.Hash {
		t.Errorf("the same commit is at %+v, %v; want hash %s", p, err, pos.Hash.Short())
	}
	if _, ok := log.(commitlog.Snapshotter); !ok {
		t.Error("the log is no Snapshotter any more")
	}
	if _, ok := offload.New(plain{&inner}, oneStore(store), nil).(commitlog.Snapshotter); ok {
		t.Error("a log without snapshots became a Snapshotter")
	}
}

type plain struct{ commitlog.Log }

// badStore fails, returns wrong bytes or loses blobs.
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

// TestAdmit: a rejected commit leaves no trace, and neither does its large data.
func TestAdmit(t *testing.T) {
	var inner commitlog.Memory
	store, full := blob.NewMemory(), errors.New("no room")
	log := offload.New(&inner, oneStore(store), &offload.Options{Event: 8, Admit: func(commitlog.Commit) error { return full }})
	e := session.ChunkEvent(session.UserText("more than eight bytes"))
	if _, err := log.Append(t.Context(), commitlog.Position{}, sessiontest.Next(k, commitlog.Position{}, e)); !errors.Is(err, full) {
		t.Fatalf("append: %v", err)
	}
	if _, err := inner.Last(t.Context(), k); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("the log holds it: %v", err)
	}
	if data, err := store.Get(t.Context(), blob.Sum([]byte(e.Data))); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("the blob store holds %q, %v", data, err)
	}
}

func TestFailures(t *testing.T) {
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
		var inner commitlog.Memory
		log := offload.New(&inner, oneStore(c.store), nil)
		ctx := t.Context()
		if name == "ended context" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			cancel()
		}
		if _, err := log.Append(ctx, commitlog.Position{}, sessiontest.Next(k, commitlog.Position{}, big)); !errors.Is(err, c.want) {
			t.Errorf("%s: Append = %v, want %v", name, err, c.want)
		}
		if len(inner.Keys()) != 0 {
			t.Errorf("%s: the commit was stored without its data", name)
		}
	}
	var inner commitlog.Memory
	store := &badStore{Store: blob.NewMemory()}
	log := offload.New(&inner, oneStore(store), nil)
	must.Get(log.Append(t.Context(), commitlog.Position{}, sessiontest.Next(k, commitlog.Position{}, big)))(t)
	check := func(name string, want error) {
		t.Helper()
		_, err := log.Last(t.Context(), k)
		if !errors.Is(err, offload.ErrBlob) || !errors.Is(err, want) || !strings.Contains(err.Error(), "commit 1 of default/s") {
			t.Errorf("%s: Last = %v", name, err)
		}
		n := 0
		for _, err := range log.Read(t.Context(), k, commitlog.Position{}) {
			if n++; !errors.Is(err, offload.ErrBlob) {
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

// shelf is a store with an index of its blobs.
type shelf struct {
	blob.Store
	has map[blob.Digest]bool
}

func (s *shelf) Put(ctx context.Context, r io.Reader) (blob.Ref, error) {
	ref, err := s.Store.Put(ctx, r)
	s.has[ref.Digest] = true
	return ref, err
}
