package node

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/memory/local"
)

// fill makes the device of an open file of this process full.
func fill(t *testing.T, name string) {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range fds {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err != nil || to != name {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Dup3(int(full.Fd()), fd, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("%s is not open", name)
}

// TestMemoryAfterFullDisk: a disk that was full for a while does not end the
// writing into a memory for as long as the node lives.
func TestMemoryAfterFullDisk(t *testing.T) {
	m := testMemories(t)
	s, err := m.get(t.Context(), "acme", "notes")
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) error {
		return s.Write(t.Context(), "memory://user/memories/notes/"+text, text, memory.Origin{})
	}
	if err := write("0000000000000001"); err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(dir, "acme", "notes", "notes.log"))
	if err := write("0000000000000002"); !errors.Is(err, local.ErrBroken) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a write to a full disk: %v", err)
	}
	if err := write("0000000000000003"); err != nil {
		t.Errorf("the disk has room again: %v", err)
	}
	for text, want := range map[string]error{"0000000000000001": nil, "0000000000000002": memory.ErrNotFound, "0000000000000003": nil} {
		if got, err := s.Read(t.Context(), "memory://user/memories/notes/"+text); !errors.Is(err, want) || err == nil && got != text {
			t.Errorf("note %s: %q, %v", text, got, err)
		}
	}
}
