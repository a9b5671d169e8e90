package filelock

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// Try takes the lock of f and reports whether it succeeded. It locks one byte far beyond
// the contents, so that other processes can still read them.
func Try(f *os.File) (taken bool, err error) {
	err = lock(f, windows.LOCKFILE_FAIL_IMMEDIATELY)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// Wait takes the lock of f once no other process has it.
func Wait(f *os.File) error { return lock(f, 0) }

// Release gives the lock back and closes f.
func Release(f *os.File) error { return f.Close() }

func lock(f *os.File, flags uint32) error {
	at := &windows.Overlapped{OffsetHigh: math.MaxInt32}
	return windows.LockFileEx(windows.Handle(f.Fd()), flags|windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, at)
}
