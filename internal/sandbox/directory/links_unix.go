//go:build unix

package directory

import (
	"io/fs"
	"os"
	"syscall"
)

// linkCount returns the number of names of an open file.
func linkCount(_ *os.File, fi fs.FileInfo) (uint64, error) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 1, nil
	}
	return uint64(st.Nlink), nil
}
