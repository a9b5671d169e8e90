package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/internal/notebook"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/memory/local"
	"github.com/rathcluster/rath/memory/memorytest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

const aNote = "memory://user/memories/notes/0000000000000001"

// TestMemoriesAreClosed: tasks name memories freely, and unused ones do not
// stay open. What was written is there when it is needed.
func TestMemoriesAreClosed(t *testing.T) {
	dir := t.TempDir()
	m := &memories{log: slog.New(slog.DiscardHandler), opener: func(t session.Tenant, name string) (openable, error) {
		return local.Open(filepath.Join(dir, string(t), name), nil)
	}}
	t.Cleanup(func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	})
	first, err := m.get(t.Context(), "acme", "m0")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxMemories {
		s, err := m.get(t.Context(), "acme", fmt.Sprint("m", i))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Write(t.Context(), aNote, fmt.Sprint("note ", i), memory.Origin{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(m.open); n > maxMemories {
		t.Errorf("%d memories are open and nobody uses them, at most %d may be", n, maxMemories)
	}
	if text, err := first.Read(t.Context(), aNote); err != nil || text != "note 0" {
		t.Errorf("the first memory holds %q, %v", text, err)
	}
	if err := m.close(); err != nil {
		t.Error(err)
	}
	if _, err := first.Read(t.Context(), aNote); !errors.Is(err, memory.ErrClosed) {
		t.Errorf("a memory of a node that has ended answers with %v", err)
	}
}

// TestMemoryOfTheFleet: what was written on one node is found on others, also on one that
// is bound to the tenant, and by no other tenant.
func TestMemoryOfTheFleet(t *testing.T) {
	t.Parallel()
	srv, _ := tenants(t)
	a, b := member(t, srv, Options{}), member(t, srv, Options{})
	bound := boundMember(t, srv, Options{})
	of := func(n *Instance, tenant session.Tenant) memory.Store {
		m, err := n.Memory(t.Context(), tenant, "notes")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if err := of(a, "acme").Write(t.Context(), aNote, "The grinder is in the kitchen.", memory.Origin{}); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	for _, n := range []*Instance{b, bound} {
		hits, err := of(n, "acme").Find(t.Context(), memory.Query{Text: "grinder"})
		if err != nil || len(hits) != 1 || hits[0].URI != aNote {
			t.Errorf("found %v, %v", hits, err)
		}
	}
	if hits, err := of(b, "bolt").Find(t.Context(), memory.Query{Text: "grinder"}); err != nil || len(hits) > 0 {
		t.Errorf("another tenant finds %v, %v", hits, err)
	}
	if _, err := of(bound, "bolt").Find(t.Context(), memory.Query{Text: "grinder"}); !errors.Is(err, session.ErrTenant) {
		t.Errorf("a node of tenant acme asks for a memory of bolt: %v", err)
	}
	n := 0
	memorytest.TestStore(t, func(t *testing.T) memory.Store {
		n++
		m, err := bound.Memory(t.Context(), "acme", fmt.Sprint("suite", n))
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
}

// TestNotesOfAFormerRelease: what nodes kept in directories of their own comes into the
// memories of the fleet at the first start, and what is forgotten then does not come back.
func TestNotesOfAFormerRelease(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	store := t.TempDir()
	const archived = 700
	for tenant, name := range map[string]string{"acme": "notes", "bolt": "lessons"} {
		former, err := local.Open(filepath.Join(store, "memory", tenant, name), nil)
		if err != nil {
			t.Fatal(err)
		}
		err = former.Write(t.Context(), aNote, "of "+tenant, memory.Origin{Session: "s1"})
		for i := range archived {
			if err == nil {
				_, err = former.Archive(t.Context(), "s1", fmt.Sprint(i), []memory.Message{{Role: "user", Text: fmt.Sprint("word", i)}, {Text: "beside"}}, memory.Origin{})
			}
		}
		if err = errors.Join(err, former.Close()); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{NATS: srv.URL(), Level: "lazy"}
	o.User, o.Password = srv.Node()
	for round := range 2 {
		o.Store = store
		n := begin(t, &o).started(t)
		m, err := n.Memory(t.Context(), "acme", "notes")
		if err != nil {
			t.Fatal(err)
		}
		uris, err := m.List(t.Context(), "memory://")
		if want := 1 + 2*archived; err != nil || len(uris) != want-round {
			t.Errorf("start %d: %d notes, %v", round, len(uris), err)
		}
		hits, err := m.Find(t.Context(), memory.Query{Text: "word7"})
		if err != nil || len(hits) != 2 {
			t.Errorf("start %d: a message and its neighbour are found as %v, %v", round, hits, err)
		}
		if text, err := m.Read(t.Context(), aNote); round == 0 && (err != nil || text != "of acme") || round == 1 && !errors.Is(err, memory.ErrNotFound) {
			t.Errorf("start %d: %q, %v", round, text, err)
		}
		if err := errors.Join(m.Delete(t.Context(), aNote), n.Close()); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadDir(filepath.Join(store, "memory", "bolt"))
	if err != nil || !slices.ContainsFunc(kept, func(e os.DirEntry) bool { return e.Name() == "lessons.imported" }) || len(kept) != 1 {
		t.Errorf("of the directory is left %v, %v", kept, err)
	}
}

// clientMemory is a memory by a client, which gives the origins back that a store keeps.
type clientMemory struct {
	memory.Store
	t *testing.T

	mu   sync.Mutex
	from map[string]memory.Origin
}

func (m *clientMemory) Write(ctx context.Context, uri, text string, from memory.Origin) error {
	m.mu.Lock()
	m.from[uri] = from
	m.mu.Unlock()
	return m.Store.Write(ctx, uri, text, from)
}

func (m *clientMemory) Find(ctx context.Context, q memory.Query) ([]memory.Hit, error) {
	hits, err := m.Store.Find(ctx, q)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, h := range hits {
		if h.Origin != (memory.Origin{User: messages.UserOperator}) {
			m.t.Errorf("%s is of %+v", h.URI, h.Origin)
		}
		hits[i].Origin = m.from[h.URI]
	}
	return hits, err
}

// TestMemoryOfAClient: a client has the memories that agents have, as package memory says,
// but for origins: a note is of its user.
func TestMemoryOfAClient(t *testing.T) {
	t.Parallel()
	n := begin(t, &Options{Store: t.TempDir(), Level: "lazy"}).started(t)
	c, err := n.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	defer c.Close()
	count := 0
	memorytest.TestStore(t, func(t *testing.T) memory.Store {
		count++
		m, err := c.Memory(fmt.Sprint("suite", count))
		if err != nil {
			t.Fatal(err)
		}
		return &clientMemory{Store: m, t: t, from: map[string]memory.Origin{}}
	})
	m, err := c.Memory("notes")
	if err != nil {
		t.Fatal(err)
	}
	// More than an answer holds, and texts that JSON makes longer.
	want := 0
	for i := range 7 {
		if err := m.Write(t.Context(), fmt.Sprintf("memory://agent/large/%d", i), strings.Repeat(strings.Repeat("\"\n<", i)+"words ", 10_000), memory.Origin{}); err != nil {
			t.Fatal(err)
		}
		want += 10_000 * (3*i + 6)
	}
	got := 0
	err = c.EachNote(t.Context(), "notes", "memory://agent", 0, func(_, text string, from memory.Origin) error {
		got += len(text)
		if from.User == "" {
			t.Error("a note has no origin")
		}
		return nil
	})
	if err != nil || got != want {
		t.Errorf("%d bytes of %d, %v", got, want, err)
	}
	if text, err := memory.ReadLevel(t.Context(), m, "memory://agent/large", memory.LevelFull); err != nil || len(text) != want {
		t.Errorf("read as one they are %d bytes of %d, %v", len(text), want, err)
	}
	got = 0
	err = c.EachNote(t.Context(), "notes", "memory://", 4, func(string, string, memory.Origin) error { got++; return nil })
	if err != nil || got != 4 {
		t.Errorf("%d notes of the 4 that were asked for, %v", got, err)
	}
	names, err := c.Memories(t.Context())
	if err != nil || !slices.Contains(names, "notes") {
		t.Errorf("memories %q, %v", names, err)
	}
	if _, err := c.Memory("a.b"); err == nil {
		t.Error("a memory has the name a.b")
	}
}

// formerFrame is a record of a log of notes as former releases wrote it.
func formerFrame(t *testing.T, payload any) []byte {
	data, err := json.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	size := binary.LittleEndian.AppendUint32(nil, uint32(len(data)))
	sum := crc32.Checksum(append(bytes.Clone(size), data...), crc32.MakeTable(crc32.Castagnoli))
	return slices.Concat([]byte("\xf5RM1"), size, binary.LittleEndian.AppendUint32(nil, sum), data)
}

// TestOldLargeNote: a note of a former release that no answer holds is told by name, and
// does not hide the others.
func TestOldLargeNote(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	former := filepath.Join(store, "memory", "default", "notes")
	if err := os.MkdirAll(former, 0o700); err != nil {
		t.Fatal(err)
	}
	const large, half = "memory://user/b", "memory://user/d"
	log := formerFrame(t, map[string]any{"format": "rath-memory", "version": 1})
	for uri, text := range map[string]string{"memory://user/a": "one", large: strings.Repeat("\x01", memory.MaxText), "memory://user/c": "three", half: strings.Repeat(`"`, memory.MaxText)} {
		log = append(log, formerFrame(t, notebook.Change{Puts: []notebook.Note{{URI: uri, Text: text}}})...)
	}
	if err := os.WriteFile(filepath.Join(former, "notes.log"), log, 0o600); err != nil {
		t.Fatal(err)
	}
	n := begin(t, &Options{Store: store, Level: "lazy"}).started(t)
	defer n.Close()
	c, err := n.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	told := func(err error) {
		t.Helper()
		if !errors.Is(err, memory.ErrTooLarge) || !strings.Contains(err.Error(), large) || strings.Contains(err.Error(), "commit") {
			t.Errorf("error %v", err)
		}
	}
	var read []string
	each := func(uri, _ string, _ memory.Origin) error { read = append(read, uri); return nil }
	told(c.EachNote(t.Context(), "notes", "memory://", 0, each))
	if want := []string{"memory://user/a", "memory://user/c", half}; !slices.Equal(read, want) {
		t.Errorf("read %q, want %q", read, want)
	}
	read = nil
	if err := c.EachNote(t.Context(), "notes", "memory://", 1, each); err != nil || len(read) != 1 {
		t.Errorf("read %q of the one that was asked for, %v", read, err)
	}
	m, err := c.Memory("notes")
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Read(t.Context(), large)
	told(err)
	if text, err := m.Read(t.Context(), half); len(text) != memory.MaxText {
		t.Errorf("%d bytes of %s, %v", len(text), half, err)
	}
}
