package natsserver

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// DiskSpace returns the space of a directory's volume; it is for Options.Space.
func DiskSpace(dir string) (Space, error) {
	var free, total uint64
	name, err := windows.UTF16PtrFromString(dir)
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(name, &free, &total, nil)
	}
	if err != nil {
		return Space{}, fmt.Errorf("natsserver: disk of %s: %w", dir, err)
	}
	return Space{Free: int64(free), Total: int64(total)}, nil
}
