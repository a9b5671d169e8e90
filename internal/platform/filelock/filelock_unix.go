//go:build unix

package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Try takes the lock of f, and reports whether no other process has it.
func Try(f *os.File) (taken bool, err error) {
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// Wait takes the lock of f once no other process has it.
func Wait(f *os.File) error { return flock(f, unix.LOCK_EX) }

// Release releases the lock and closes f. Closing is not enough: a program that another
// goroutine is about to execute inherits the file, and with it the lock, until its exec.
func Release(f *os.File) error { return errors.Join(flock(f, unix.LOCK_UN), f.Close()) }

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
