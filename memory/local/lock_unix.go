//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// acquire locks the file at path until release or the end of the process. The
// file names the process that has it, for people.
func acquire(path string) (_ *os.File, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		owner, _ := io.ReadAll(io.LimitReader(file, 20)) // for the message only
		return nil, fmt.Errorf("%w by process %s: stop it or name another directory", ErrLocked, strings.TrimSpace(string(owner)))
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := file.Truncate(0); err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(file, os.Getpid())
	return file, err
}

// release unlocks and closes what acquire returned. Closing alone would not do:
// a program that another goroutine is about to execute inherits the file, and
// with it the lock, until its exec.
func release(file *os.File) error {
	return errors.Join(syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
}

// syncDir waits until the names in a directory are on the medium.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
