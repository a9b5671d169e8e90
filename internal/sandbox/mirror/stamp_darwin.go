package mirror

import (
	"io/fs"
	"syscall"
)

// stampOf returns the metadata that change when a file changes.
func stampOf(fi fs.FileInfo) stamp {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}
	}
	return stamp{ok: true, size: st.Size, mtime: st.Mtimespec.Nano(), ctime: st.Ctimespec.Nano(), inode: st.Ino, mode: uint32(st.Mode)}
}
