package notes

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/session"
)

// fill writes large notes until one is refused, and returns how many there are and why.
func fill(t *testing.T, s *Store) (n int, err error) {
	t.Helper()
	text := strings.Repeat("words of a note ", memory.MaxText/16)
	for ; err == nil && n < 100; n++ {
		err = s.Write(t.Context(), fmt.Sprintf("memory://agent/large/%03d", n), text, memory.Origin{})
	}
	return n - 1, err
}

func wantFull(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, memory.ErrFull) || !strings.Contains(err.Error(), "rath memory forget") || !strings.Contains(err.Error(), "rath cluster provision") {
		t.Errorf("want a full memory, with what to do, got %v", err)
	}
}

// TestFullStream: a tenant that holds most of a stream leaves room for another one, a full
// stream returns an error, and deletions then make room.
func TestFullStream(t *testing.T) {
	t.Parallel()
	o := streamstest.NodeOptions(natstest.Start(t, nil))
	o.StoreBytes = streams.MinStoreBytes
	s := layer.Dial(t, o)
	must.Do(t, s.Provision(t.Context()))
	acme, bolt := open(t, s, "notes"), openOf(t, s, "bolt")
	must.Do(t, bolt.Write(t.Context(), "memory://user/small", "small", memory.Origin{}))
	_, err := acme.Archive(t.Context(), "s1", "k", []memory.Message{{Role: "user", Text: "archived words"}}, memory.Origin{})
	must.Do(t, err)
	first, err := fill(t, acme)
	wantFull(t, err)
	if !strings.Contains(err.Error(), "more than half of it of tenant acme") {
		t.Errorf("%d notes filled the stream: %v", first, err)
	}
	// Another tenant still has room, up to the end.
	second, err := fill(t, bolt)
	wantFull(t, err)
	if first < 10 || second < 1 {
		t.Errorf("there is room for %d notes of one tenant and %d of another", first, second)
	}
	filler := strings.Repeat("x", 4<<10)
	for n := 0; err == nil || n == 0; n++ { // not even a delete fits
		err = bolt.Write(t.Context(), fmt.Sprint("memory://user/filler/", n), filler, memory.Origin{})
		if errors.Is(err, memory.ErrFull) && len(filler) > 1 {
			filler, err = filler[:len(filler)/2], nil
		}
	}
	wantFull(t, err)
	must.Do(t, bolt.Delete(t.Context(), "memory://user/filler"))
	must.Do(t, bolt.Write(t.Context(), "memory://user/again", "room again", memory.Origin{}))
	must.Do(t, acme.Delete(t.Context(), "memory://"))
	for name, s := range map[string]*Store{"the one that deleted": acme, "one that reads the stream": open(t, s, "notes")} {
		if got := contents(t, s); len(got) != 0 {
			t.Errorf("%s has %d notes of none", name, len(got))
		}
	}
	if got := contents(t, openOf(t, s, "bolt")); len(got) != 2+second {
		t.Errorf("the other tenant has %d notes, want %d", len(got), 2+second)
	}
	if n, _ := fill(t, openOf(t, s, "cask")); n < first/2 {
		t.Errorf("after a tenant's notes were deleted there is room for %d", n)
	}
}

// openOf opens a memory of another tenant.
func openOf(t *testing.T, s *streams.Streams, tenant string) *Store {
	t.Helper()
	m, err := Open(s, session.Tenant(tenant), "notes", nil)
	must.Do(t, err)
	return m
}

// TestFullDisk: notes do not fill the disk's reserve for the ends of runs. They can be read
// and deleted meanwhile, and written again once there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	var free atomic.Int64
	free.Store(1000 * mib)
	srv := natstest.Start(t, &natsserver.Options{Space: func(string) (natsserver.Space, error) {
		return natsserver.Space{Free: free.Load(), Total: 2000 * mib}, nil // 100 are kept
	}})
	o := streamstest.NodeOptions(srv)
	o.Disk = func() streams.Disk { return streams.Disk{Free: free.Load(), Total: 2000 * mib, Kept: 100 * mib} }
	s := layer.Dial(t, o)
	must.Do(t, s.Provision(t.Context()))
	m := open(t, s, "notes")
	must.Do(t, m.Write(t.Context(), "memory://user/a", "first words", memory.Origin{}))
	must.Do(t, m.Write(t.Context(), "memory://user/b", "second words", memory.Origin{}))

	free.Store(90 * mib)
	err := m.Write(t.Context(), "memory://user/c", "third words", memory.Origin{})
	wantFull(t, err)
	if !strings.Contains(fmt.Sprint(err), "the disk of the store has 90.0 MiB free") {
		t.Errorf("a full disk: %v", err)
	}
	if hits, err := m.Find(t.Context(), memory.Query{Text: "words"}); err != nil || len(hits) != 2 {
		t.Errorf("found %v, %v", hits, err)
	}
	must.Do(t, m.Delete(t.Context(), "memory://user/a"))
	free.Store(1000 * mib)
	must.Do(t, m.Write(t.Context(), "memory://user/c", "third words", memory.Origin{}))
	if got := contents(t, open(t, s, "notes")); len(got) != 2 || got["memory://user/c"] == "" {
		t.Errorf("afterwards there are %v", got)
	}
}
