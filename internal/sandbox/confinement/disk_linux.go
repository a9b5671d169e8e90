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
	// maxRest is how long the watch believes the free room of the file systems, and
	// leastDrop how much less of it calls for a look before.
	maxRest   = 2 * time.Second
	leastDrop = 1 << 20
	// lastLook bounds the look after a command: its end waits for it.
	lastLook = 10 * time.Second
	// leastFile is the least that a file counts, in bytes of the limit; see mostUse.
	leastFile = 4096
)

// disk is what the files of a sandbox may take, and what takes it.
type disk struct {
	limit Use
	// held is what the commands before left where that is more than they may, so that
	// commands can look at it and remove some: they may not add to it. Else it is 0.
	held Use
	dirs []int
	// confined means that no command can have become another user, so that a process that
	// cannot be looked into has hidden itself.
	confined bool
}

// mostUse is the limit of a number of bytes: each file and directory takes at least the
// smallest block of a disk, also an empty one, so that the inodes do not run out before.
func mostUse(bytes int64) Use { return Use{Bytes: bytes, Files: bytes / leastFile} }

// most is what the files may take while a command runs.
func (d *disk) most() Use {
	return Use{Bytes: max(d.limit.Bytes, d.held.Bytes), Files: max(d.limit.Files, d.held.Files)}
}

// count is one look at the room of the files.
type count struct {
	Use
	most    Use
	done    <-chan struct{} // ends the look
	devices map[uint64]bool // of the directories
	removed int64           // bytes of removed files that are held open
	deep    bool            // directories lie too deep in one another
	hidden  bool            // the open files of a process cannot be listed
}

// over reports whether the look has found more than it may.
func (c *count) over() bool { return c.Bytes > c.most.Bytes || c.Files > c.most.Files }

// full reports whether a look is over because of it, or because it was ended.
func (c *count) full() bool {
	select {
	case <-c.done:
		return true
	default:
		return c.over()
	}
}

// look adds up the files of the directories, and, while a command runs, the removed files that
// are held open, until it is more than most, or done is closed.
func (d *disk) look(done <-chan struct{}, most Use, running bool) *count {
	c := &count{most: most, done: done, devices: make(map[uint64]bool)}
	for _, dir := range d.dirs {
		var st unix.Stat_t
		if unix.Fstat(dir, &st) == nil {
			c.devices[st.Dev] = true
		}
		if c.below(dir, maxDepth); c.full() {
			return c
		}
	}
	if running {
		c.removedFiles()
	}
	return c
}

// says describes, for people, why a command is over the limit.
func (d *disk) says(c *count) string {
	most := d.most()
	switch {
	case c.Bytes > most.Bytes && c.removed > 0:
		return fmt.Sprintf("the files of the sandbox take more than its limit of %d bytes of disk, %d of them in files that were removed and are still open", d.limit.Bytes, c.removed)
	case c.Bytes > most.Bytes:
		return fmt.Sprintf("the files of the sandbox take more than its limit of %d bytes of disk", d.limit.Bytes)
	case c.Files > most.Files:
		return fmt.Sprintf("the sandbox has more than %d files and directories (inodes): its limit of %d bytes of disk allows one for each %d", d.limit.Files, d.limit.Bytes, leastFile)
	case c.hidden:
		return fmt.Sprintf("a process runs a program that may not be read, so its open files cannot be counted against the limit of %d bytes of disk", d.limit.Bytes)
	}
	return fmt.Sprintf("more than %d directories in one another", maxDepth)
}

// exceeded reports whether a command is to end because of a look.
func (d *disk) exceeded(c *count) bool {
	return c.over() || c.hidden && d.confined || c.deep && d.held == Use{}
}

// watch sends a reason to over when the directories hold more than they may. It looks again
// once their file systems have less free room than before, which is one system call to find
// out, and after maxRest, as files that others remove may hide new ones. The time between two
// looks grows with the time of a look, so that they cost at most a twenty-fifth of a
// processor. A command may write more than the limit between two looks; the last one finds
// it, see end.
//
// It rests before its first look: the command before ended with one, and a look that opens
// a closed directory while the command begins meets those that begin by opening it.
func (d *disk) watch(over chan<- string, done <-chan struct{}) {
	var before Use     // the free room at the last look
	var next time.Time // of a look in any case
	for rest := minRest; ; {
		select {
		case <-done:
			return
		case <-time.After(rest):
		}
		began := time.Now()
		free, err := d.free()
		if err == nil && free.Bytes > 0 && began.Before(next) && before.Bytes-free.Bytes < leastDrop && before.Files-free.Files < leastDrop/leastFile {
			continue
		}
		before, next = free, began.Add(maxRest)
		if c := d.look(done, d.most(), true); d.exceeded(c) {
			over <- "killed: " + d.says(c)
			return
		}
		rest = max(minRest, diskShare*time.Since(began))
	}
}

// free is the free room of the file systems of the directories; 0 where it is not known.
func (d *disk) free() (u Use, err error) {
	for _, dir := range d.dirs {
		var st unix.Statfs_t
		if err := unix.Fstatfs(dir, &st); err != nil {
			return u, err
		}
		u.Bytes += int64(st.Bfree) * st.Bsize
		u.Files += int64(st.Ffree)
	}
	return u, nil
}

// end looks once more after a command, and notes in its result what it finds.
func (d *disk) end(r *Result) {
	done := make(chan struct{})
	timer := time.AfterFunc(lastLook, func() { close(done) })
	defer timer.Stop()
	c := d.look(done, Use{math.MaxInt64, math.MaxInt64}, false)
	if c.Bytes <= d.limit.Bytes && c.Files <= d.limit.Files && !c.deep {
		return
	}
	r.Held = c.Use
	c.most = d.most()
	if !r.Full && d.exceeded(c) {
		r.Full, r.Note = true, d.says(c)
	}
}

// below adds up all below a directory, of which it has a handle. A file that is gone
// meanwhile does not count.
func (c *count) below(dir, depth int) {
	fd, closeAgain, err := openClosed(dir)
	if err != nil {
		return
	}
	defer closeAgain()
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	for !c.full() {
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			c.Bytes += st.Blocks * 512
			if c.Files++; c.over() {
				return
			}
			if st.Mode&unix.S_IFMT != unix.S_IFDIR {
				continue
			}
			if depth == 0 {
				c.deep = true
				return
			}
			child, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			c.below(child, depth-1)
			unix.Close(child)
			if c.deep || c.full() {
				return
			}
		}
		if err == io.EOF || len(names) == 0 {
			return
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
