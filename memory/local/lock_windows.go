package local

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// errSharingViolation is the error of opening a file that another process has
// open without sharing.
const errSharingViolation syscall.Errno = 32

// acquire opens the file at path without sharing it, until release or the end
// of the process.
func acquire(path string) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharingViolation) {
		return nil, fmt.Errorf("%w by another process: stop it or name another directory", ErrLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return os.NewFile(uintptr(h), path), nil
}

// release gives back what acquire returned.
func release(file *os.File) error { return file.Close() }

// syncDir does nothing: Windows has no fsync of directories.
func syncDir(string) error { return nil }
