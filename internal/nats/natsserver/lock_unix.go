//go:build unix

package natsserver

import (
	"errors"

	"golang.org/x/sys/unix"
)

// ended reports whether no process has an id, 0 being none that could be read.
func ended(pid int) bool {
	return pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

func isReadOnly(err error) bool { return errors.Is(err, unix.EROFS) }
