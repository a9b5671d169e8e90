//go:build unix

package workspace

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

// giveTo gives a file the owner of like, which differs from this process's user if the
// sandbox has its own users.
func giveTo(root *os.Root, name string, like fs.FileInfo) error {
	st, ok := like.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == os.Geteuid() {
		return nil
	}
	return root.Lchown(name, int(st.Uid), int(st.Gid))
}
