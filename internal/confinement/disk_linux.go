package confinement

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
	// lastLook bounds the look after a command: its end waits for it.
	lastLook = 10 * time.Second
)

// disk is what the files of a sandbox may take, and what takes it.
type disk struct {
	limit int64
	// held is what the commands before left where that is more than they may, so that
	// commands can look at it and remove some: they may not add to it. Else it is 0.
	held int64
	dirs []int
}

// most is what the files may take while a command runs.
func (d *disk) most() int64 { return max(d.limit, d.held) }

// look adds up what the directories hold, until it is more than most, or done is closed.
func (d *disk) look(done <-chan struct{}, most int64) (all int64, tooDeep bool) {
	for _, dir := range d.dirs {
		n, deep := diskUse(dir, done, most-all, maxDepth)
		if all += n; all > most {
			break
		}
		tooDeep = tooDeep || deep
	}
	return all, tooDeep
}

// says is what people read of a command that is over the limit.
func (d *disk) says(all int64, tooDeep bool) string {
	if all <= d.most() && tooDeep {
		return fmt.Sprintf("more than %d directories in one another", maxDepth)
	}
	return fmt.Sprintf("the files of the sandbox take more than its limit of %d bytes of disk", d.limit)
}

// watch says when the directories hold more than they may. It looks again after a time that
// grows with what a look takes, so that it costs at most a twenty-fifth of a processor; what
// a command writes between two looks can be more than the limit, and the last look finds
// it, see end. Of files that are removed and held open it sees nothing.
//
// It rests before its first look: the command before ended with one, and a look that opens
// a closed directory while the command begins meets those that begin by opening it.
func (d *disk) watch(over chan<- string, done <-chan struct{}) {
	rest := minRest
	for {
		select {
		case <-done:
			return
		case <-time.After(rest):
		}
		began := time.Now()
		if all, tooDeep := d.look(done, d.most()); all > d.most() || tooDeep && d.held == 0 {
			over <- "killed: " + d.says(all, tooDeep)
			return
		}
		rest = max(minRest, diskShare*time.Since(began))
	}
}

// end looks once more after a command, and notes in its result what it finds.
func (d *disk) end(r *Result) {
	done := make(chan struct{})
	timer := time.AfterFunc(lastLook, func() { close(done) })
	defer timer.Stop()
	all, tooDeep := d.look(done, math.MaxInt64)
	if all <= d.limit && !tooDeep {
		return
	}
	r.Held = max(all, 1)
	if !r.Full && (all > d.most() || tooDeep && d.held == 0) {
		r.Full, r.Note = true, d.says(all, tooDeep)
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
// closeAgain: what lies in it can grow all the same. Meanwhile its sticky bit is the other
// way, which tells this mode from one that the command gives it. A mode that the command
// gives between one of the two pairs of reading and setting, some microseconds, is lost.
func openClosed(dir int) (fd int, closeAgain func(), err error) {
	const list = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return -1, nil, err
	}
	closeAgain = func() {}
	self := fmt.Sprintf("/proc/self/fd/%d", dir)
	if st.Mode&0o500 != 0o500 {
		open := 0o700 | ^st.Mode&unix.S_ISVTX
		if err := unix.Chmod(self, open); err != nil {
			return -1, nil, err
		}
		closeAgain = func() { // only if it is as it was left
			var now unix.Stat_t
			if unix.Fstat(dir, &now) == nil && now.Mode&0o7777 == open {
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
