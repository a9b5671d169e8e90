package workspace

import (
	"io/fs"
	"syscall"
)

// stampOf returns the metadata that shows whether a file has changed.
func stampOf(fi fs.FileInfo) (stamp, bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}, false
	}
	return stamp{size: st.Size, mtime: st.Mtimespec.Nano(), ctime: st.Ctimespec.Nano(), inode: st.Ino, mode: uint32(st.Mode)}, true
}

// ownedByUser reports whether a file belongs to the user of this process.
func ownedByUser(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == syscall.Geteuid()
}
