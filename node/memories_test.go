package node

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/memory/local"
	"github.com/rathcluster/rath/memory/memorytest"
)

func testMemories(t *testing.T) *memories {
	m := &memories{dir: t.TempDir(), log: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestMemoriesAreClosed: tasks name memories freely, and unused ones do not
// stay open. What was written is there when it is needed.
func TestMemoriesAreClosed(t *testing.T) {
	m := testMemories(t)
	const uri = "memory://user/memories/notes/0000000000000001"
	first, err := m.get(t.Context(), "acme", "m0")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxMemories {
		s, err := m.get(t.Context(), "acme", fmt.Sprint("m", i))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Write(t.Context(), uri, fmt.Sprint("note ", i), memory.Origin{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(m.open); n > maxMemories {
		t.Errorf("%d memories are open and nobody uses them, at most %d may be", n, maxMemories)
	}
	if text, err := first.Read(t.Context(), uri); err != nil || text != "note 0" {
		t.Errorf("the first memory holds %q, %v", text, err)
	}
	if err := m.close(); err != nil {
		t.Error(err)
	}
	if _, err := first.Read(t.Context(), uri); !errors.Is(err, memory.ErrClosed) {
		t.Errorf("a memory of a node that has ended answers with %v", err)
	}
}

func TestMemoryStore(t *testing.T) {
	memorytest.TestStore(t, func(t *testing.T) memory.Store {
		s, err := testMemories(t).get(t.Context(), "acme", "notes")
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// TestMemoryBesideOneThatOpens: while a large memory is read for one task, others
// use theirs. Two that want the same one share the reading, and its failure ends
// nothing for later users.
func TestMemoryBesideOneThatOpens(t *testing.T) {
	m := testMemories(t)
	begun, read := make(chan string, 8), make(chan error)
	m.opener = func(path string) (*local.Store, error) {
		if filepath.Base(path) == "large" {
			begun <- path
			if err := <-read; err != nil {
				return nil, err
			}
		}
		return local.Open(path, nil)
	}
	got := make(chan error, 2)
	get := func(name string) {
		_, err := m.get(t.Context(), "acme", name)
		got <- err
	}
	users := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.open[filepath.Join(m.dir, "acme", "large")].users
	}
	await := func() error {
		select {
		case err := <-got:
			return err
		case <-time.After(30 * time.Second):
			t.Fatal("nothing is opened")
			return nil
		}
	}
	for _, fails := range []error{errors.New("the disk is broken"), nil} {
		go get("large")
		<-begun
		go get("large")
		for users() < 2 {
			runtime.Gosched()
		}
		go get("small")
		if err := await(); err != nil {
			t.Error(err)
		}
		read <- fails
		for range 2 {
			if err := await(); !errors.Is(err, fails) {
				t.Errorf("opened with %v, want %v", err, fails)
			}
		}
	}
	if len(begun) > 0 {
		t.Error("it was opened twice at once")
	}
}
