package scratch

import (
	"os"

	"golang.org/x/sys/unix"
)

// memory is where Linux keeps a file system in memory for all users.
const memory = "/dev/shm"

// room is the minimum free space: in a container it is often too small.
const room = 4 << 30

// InMemory selects a file system in memory for the temporary directories of this process
// and its children. Call it in TestMain, before tests run. It does nothing if TMPDIR is
// set, or if there is no such file system with enough space that allows execution.
func InMemory() {
	var fs unix.Statfs_t
	if os.Getenv("TMPDIR") != "" || unix.Statfs(memory, &fs) != nil || unix.Access(memory, unix.W_OK|unix.X_OK) != nil {
		return
	}
	free := fs.Bavail * uint64(fs.Bsize)
	if fs.Type == unix.TMPFS_MAGIC && free >= room && fs.Flags&(unix.ST_NOEXEC|unix.ST_RDONLY) == 0 {
		_ = os.Setenv("TMPDIR", memory) // it fails only for malformed names
	}
}
