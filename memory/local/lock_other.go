//go:build !darwin && !dragonfly && !freebsd && !linux && !netbsd && !openbsd && !windows

package local

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// acquire refuses: without a lock two processes would spoil each other's log.
func acquire(string) (*os.File, error) {
	return nil, fmt.Errorf("memory/local: no file locks on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func release(file *os.File) error { return file.Close() }

func syncDir(string) error { return nil }
