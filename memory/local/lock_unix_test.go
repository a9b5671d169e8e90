//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package local

import (
	"syscall"
	"testing"
)

// TestLockInherited holds a second descriptor of the lock's file, as a program
// between fork and exec does: Close gives the directory back all the same.
func TestLockInherited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, nil)
	inherited, err := syscall.Dup(int(s.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Close(inherited); err != nil {
			t.Error(err)
		}
	})
	closeStore(t, s)
	closeStore(t, open(t, dir, nil))
}
