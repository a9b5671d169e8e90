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
	return stamp{ok: true, size: st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(), inode: st.Ino, mode: st.Mode}
}
