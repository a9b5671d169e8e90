package filelock_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rathcluster/rath/internal/platform/filelock"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestLock: one holder at a time has the lock of a file, and who waits for it gets it next.
func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	open := func() *os.File {
		f := must.Get(os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600))(t)
		return f
	}
	first, second, third := open(), open(), open()
	if taken, err := filelock.Try(first); err != nil || !taken {
		t.Fatalf("the first: %v, %v", taken, err)
	}
	if taken, err := filelock.Try(second); err != nil || taken {
		t.Fatalf("while the first has it: %v, %v", taken, err)
	}
	got := make(chan error, 1)
	go func() { got <- filelock.Wait(third) }()
	must.Do(t, filelock.Release(first))
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if taken, err := filelock.Try(second); err != nil || taken {
		t.Errorf("while the third has it: %v, %v", taken, err)
	}
	must.Do(t, filelock.Release(third))
	if taken, err := filelock.Try(second); err != nil || !taken {
		t.Errorf("in the end: %v, %v", taken, err)
	}
	must.Do(t, filelock.Release(second))
}
