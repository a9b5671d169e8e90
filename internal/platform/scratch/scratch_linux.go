package scratch

import (
	"os"

	"golang.org/x/sys/unix"
)

// memory is where Linux keeps a file system in memory for all users.
const memory = "/dev/shm"

// room is how much of it has to be free: in a container it is often too small.
const room = 4 << 30

// InMemory names a file system in memory for this process's temporary directories, and
// those of the processes that it starts. It is for TestMain, before tests run. Where TMPDIR
// says another place, or there is no such file system, with room, on which programs may
// run, it does nothing.
func InMemory() {
	var fs unix.Statfs_t
	if os.Getenv("TMPDIR") != "" || unix.Statfs(memory, &fs) != nil || unix.Access(memory, unix.W_OK|unix.X_OK) != nil {
		return
	}
	free := fs.Bavail * uint64(fs.Bsize)
	if fs.Type == unix.TMPFS_MAGIC && free >= room && fs.Flags&(unix.ST_NOEXEC|unix.ST_RDONLY) == 0 {
		_ = os.Setenv("TMPDIR", memory) // it fails for malformed names alone
	}
}
