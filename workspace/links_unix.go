//go:build unix

package workspace

import (
	"io/fs"
	"os"
	"syscall"
)

// linkCount returns how many names an open file has.
func linkCount(_ *os.File, fi fs.FileInfo) (uint64, error) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 1, nil
	}
	return uint64(st.Nlink), nil
}

// giveTo makes what lies under a name belong to the owner of something else, which is not
// this process's user where a sandbox has users of its own.
func giveTo(root *os.Root, name string, like fs.FileInfo) error {
	st, ok := like.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == os.Geteuid() {
		return nil
	}
	return root.Lchown(name, int(st.Uid), int(st.Gid))
}
