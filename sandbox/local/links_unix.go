//go:build unix

package local

import (
	"io/fs"
	"os"
	"syscall"
)

// ownedByUs reports whether this user owns a file and no other user can write it.
func ownedByUs(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid() && fi.Mode().Perm()&0o022 == 0
}
