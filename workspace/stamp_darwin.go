package workspace

import (
	"io/fs"
	"syscall"
)

// stampOf returns what tells whether a file is still what it was.
func stampOf(fi fs.FileInfo) (stamp, bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}, false
	}
	return stamp{size: st.Size, mtime: st.Mtimespec.Nano(), ctime: st.Ctimespec.Nano(), inode: st.Ino, mode: uint32(st.Mode)}, true
}

// ownedByUser reports whether a file is of the user that this process runs as.
func ownedByUser(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == syscall.Geteuid()
}
