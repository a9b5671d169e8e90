package local

import (
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxDepth is how many directories may lie in one another. Each takes two files of
	// the supervisor, which may open startFiles.
	maxDepth = 400
	// diskShare is how much longer the watch of the disk rests than it looks.
	diskShare = 25
	minRest   = 100 * time.Millisecond
)

// watchDisk says when the directories of a sandbox hold more than limit bytes. It looks
// again after a time that grows with what a look takes, so that it costs at most a
// twenty-fifth of a processor; what a command writes between two looks can be more than
// the limit. Of files that are removed and held open it sees nothing.
//
// Where the command before was killed at the limit, the next one may make room: what its
// first look finds is the limit then.
func watchDisk(over chan<- string, done <-chan struct{}, limit int64, makesRoom bool, dirs ...int) {
	most := limit
	if makesRoom {
		most = math.MaxInt64
	}
	for {
		began := time.Now()
		var all int64
		for _, dir := range dirs {
			n, tooDeep := diskUse(dir, done, most-all, maxDepth)
			if all += n; all > most {
				over <- fmt.Sprintf("killed: the files of the sandbox take more than its limit of %d bytes of disk", limit)
				return
			}
			if tooDeep && !makesRoom {
				over <- fmt.Sprintf("killed: more than %d directories in one another", maxDepth)
				return
			}
		}
		if most == math.MaxInt64 {
			most = max(limit, all)
		}
		select {
		case <-done:
			return
		case <-time.After(max(minRest, diskShare*time.Since(began))):
		}
	}
}

// diskUse adds up what lies below a directory, of which it has a handle, until it is more
// than most, or done is closed. What is gone meanwhile does not count.
func diskUse(dir int, done <-chan struct{}, most int64, depth int) (sum int64, tooDeep bool) {
	fd, closeAgain, err := openClosed(dir)
	if err != nil {
		return 0, false
	}
	defer closeAgain()
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	for {
		select {
		case <-done:
			return sum, false
		default:
		}
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if sum += st.Blocks * 512; sum > most {
				return sum, false
			}
			if st.Mode&unix.S_IFMT != unix.S_IFDIR {
				continue
			}
			if depth == 0 {
				return sum, true
			}
			child, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			n, deep := diskUse(child, done, most-sum, depth-1)
			unix.Close(child)
			if sum += n; deep || sum > most {
				return sum, deep
			}
		}
		if err == io.EOF || len(names) == 0 {
			return sum, false
		}
	}
}

// openClosed opens a directory to be listed. One that the command has closed is open until
// closeAgain: what lies in it can grow all the same.
func openClosed(dir int) (fd int, closeAgain func(), err error) {
	const list = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return -1, nil, err
	}
	closeAgain = func() {}
	self := fmt.Sprintf("/proc/self/fd/%d", dir)
	if st.Mode&0o500 != 0o500 {
		if err := unix.Chmod(self, 0o700); err != nil {
			return -1, nil, err
		}
		closeAgain = func() { // only if it is as it was left
			var now unix.Stat_t
			if unix.Fstat(dir, &now) == nil && now.Mode&0o7777 == 0o700 {
				_ = unix.Chmod(self, st.Mode&0o1777)
			}
		}
	}
	fd, err = unix.Openat(dir, ".", list, 0)
	if err != nil {
		closeAgain()
	}
	return fd, closeAgain, err
}
