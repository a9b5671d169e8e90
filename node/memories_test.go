package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/memory/memorytest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

const aNote = "memory://user/memories/notes/0000000000000001"

// keptMemory is a memory whose notes outlast its closing.
type keptMemory struct{ *notebook.InMemory }

// Close implements openable.
func (keptMemory) Close() error { return nil }

// TestMemoriesAreClosed: tasks name memories freely, and unused ones do not stay open.
// Written notes are there when they are needed.
func TestMemoriesAreClosed(t *testing.T) {
	kept := map[string]keptMemory{}
	m := &memories{log: slog.New(slog.DiscardHandler), opener: func(t session.Tenant, name string) (openable, error) {
		of := string(t) + "/" + name
		if _, ok := kept[of]; !ok {
			kept[of] = keptMemory{notebook.New(nil)}
		}
		return kept[of], nil
	}}
	t.Cleanup(func() { must.Report(t, m.close()) })
	first := must.Get(m.get(t.Context(), "acme", "m0"))(t)
	for i := range 2 * maxMemories {
		s := must.Get(m.get(t.Context(), "acme", fmt.Sprint("m", i)))(t)
		must.Do(t, s.Write(t.Context(), aNote, fmt.Sprint("note ", i), memory.Origin{}))
	}
	if n := len(m.open); n > maxMemories {
		t.Errorf("%d memories are open and nobody uses them, at most %d may be", n, maxMemories)
	}
	if text, err := first.Read(t.Context(), aNote); err != nil || text != "note 0" {
		t.Errorf("the first memory holds %q, %v", text, err)
	}
	must.Report(t, m.close())
	if _, err := first.Read(t.Context(), aNote); !errors.Is(err, memory.ErrClosed) {
		t.Errorf("a memory of a node that has ended answers with %v", err)
	}
}

// TestMemoryOfTheFleet: a note written on one node is found on others, also on one that
// is bound to the tenant, and by no other tenant.
func TestMemoryOfTheFleet(t *testing.T) {
	t.Parallel()
	srv, _ := tenants(t)
	a, b := member(t, srv, Options{}), member(t, srv, Options{})
	bound := boundMember(t, srv, Options{})
	of := func(n *Instance, tenant session.Tenant) memory.Store {
		m := must.Get(n.Memory(t.Context(), tenant, "notes"))(t)
		return m
	}
	must.Do(t, of(a, "acme").Write(t.Context(), aNote, "The grinder is in the kitchen.", memory.Origin{}))
	must.Report(t, a.Close())
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
		m := must.Get(bound.Memory(t.Context(), "acme", fmt.Sprint("suite", n)))(t)
		return m
	})
}

// clientMemory is the memory of a client, which returns the stored origins.
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

// TestMemoryOfAClient: a client has the same memories as agents, by the contract of
// package memory, except for origins: a note is of its user.
func TestMemoryOfAClient(t *testing.T) {
	t.Parallel()
	n := begin(t, &Options{Store: t.TempDir(), NATS: NATS{Level: "lazy"}}).started(t)
	c, err := n.Client(t.Context())
	must.Do(t, err)
	defer n.Close()
	defer c.Close()
	count := 0
	memorytest.TestStore(t, func(t *testing.T) memory.Store {
		count++
		m := must.Get(c.Memory.Open(fmt.Sprint("suite", count)))(t)
		return &clientMemory{Store: m, t: t, from: map[string]memory.Origin{}}
	})
	m, err := c.Memory.Open("notes")
	must.Do(t, err)
	// More than an answer holds, and texts that JSON makes longer.
	want := 0
	for i := range 7 {
		must.Do(t, m.Write(t.Context(), fmt.Sprintf("memory://agent/large/%d", i), strings.Repeat(strings.Repeat("\"\n<", i)+"words ", 10_000), memory.Origin{}))
		want += 10_000 * (3*i + 6)
	}
	got := 0
	err = c.Memory.Each(t.Context(), "notes", "memory://agent", 0, func(_, text string, from memory.Origin) error {
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
	err = c.Memory.Each(t.Context(), "notes", "memory://", 4, func(string, string, memory.Origin) error { got++; return nil })
	if err != nil || got != 4 {
		t.Errorf("%d notes of the 4 that were asked for, %v", got, err)
	}
	names, err := c.Memory.List(t.Context())
	if err != nil || !slices.Contains(names, "notes") {
		t.Errorf("memories %q, %v", names, err)
	}
	if _, err := c.Memory.Open("a.b"); err == nil {
		t.Error("a memory has the name a.b")
	}
}
