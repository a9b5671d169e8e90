package natsserver

import (
	"errors"

	"golang.org/x/sys/windows"
)

// ended is for locks that outlive their process in its children; here none does.
func ended(int) bool { return false }

func isFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

func isReadOnly(err error) bool { return errors.Is(err, windows.ERROR_WRITE_PROTECT) }
