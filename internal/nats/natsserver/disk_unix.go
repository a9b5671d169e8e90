//go:build unix

package natsserver

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// DiskSpace returns the space of a directory's file system; it is for Options.Space.
func DiskSpace(dir string) (Space, error) {
	var st unix.Statfs_t
	for {
		switch err := unix.Statfs(dir, &st); err {
		case nil:
			size := int64(st.Bsize)
			return Space{
				Free: int64(st.Bavail) * size, Total: int64(st.Blocks) * size, FreeFiles: int64(st.Ffree), TotalFiles: int64(st.Files),
			}, nil
		case unix.EINTR:
		default:
			return Space{}, fmt.Errorf("natsserver: disk of %s: %w", dir, err)
		}
	}
}
