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
	// maxDepth is the maximum depth of directories. Each level takes two files of the
	// supervisor, which may open startFiles.
	maxDepth = 400
	// diskShare is the ratio of the pause between scans to the time of a scan.
	diskShare = 25
	minRest   = 100 * time.Millisecond
	// maxRest is how long the watch relies on the free space of the file systems. A drop by
	// leastDrop triggers an earlier scan.
	maxRest   = 2 * time.Second
	leastDrop = 1 << 20
	// lastLook bounds the scan after a command, which delays the command's end.
	lastLook = 10 * time.Second
	// leastFile is the minimum size of a file in the limit, in bytes; see mostUse.
	leastFile = 4096
)

// disk is the limit and the current usage of a sandbox's files.
type disk struct {
	limit Use
	// held is the usage that earlier commands left where it is above the limit. Commands
	// may read and remove those files but not add to them. Otherwise held is 0.
	held Use
	dirs []int
	// confined means that no command can have become another user, so a process that cannot
	// be inspected has hidden itself.
	confined bool
}

// mostUse converts a limit in bytes: each file and directory, also an empty one, takes at
// least the smallest block of a disk, so that the inodes do not run out first.
func mostUse(bytes int64) Use { return Use{Bytes: bytes, Files: bytes / leastFile} }

// most returns the maximum usage while a command runs.
func (d *disk) most() Use {
	return Use{Bytes: max(d.limit.Bytes, d.held.Bytes), Files: max(d.limit.Files, d.held.Files)}
}

// count is one scan of the files' usage.
type count struct {
	Use
	most    Use
	done    <-chan struct{} // ends the scan
	devices map[uint64]bool // of the directories
	removed int64           // bytes of removed files that are held open
	deep    bool            // directories are nested too deep
	hidden  bool            // the open files of a process cannot be listed
}

// over reports whether the scan has found more than allowed.
func (c *count) over() bool { return c.Bytes > c.most.Bytes || c.Files > c.most.Files }

// full reports whether a scan is over because of the limit, or because it was stopped.
func (c *count) full() bool {
	select {
	case <-c.done:
		return true
	default:
		return c.over()
	}
}

// look adds up the files of the directories and, while a command runs, the removed files
// that are held open. It stops when they exceed most, or when done is closed.
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

// says returns a description, for users, of why a command is over the limit.
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

// exceeded reports whether the scan requires the command to end.
func (d *disk) exceeded(c *count) bool {
	return c.over() || c.hidden && d.confined || c.deep && d.held == Use{}
}

// watch sends a reason to over when the directories exceed the limit. It scans again when
// their file systems have less free space than before, which costs one system call to find
// out, and after maxRest, as files that others remove may hide new ones. The pause between
// two scans grows with the time of a scan, so that scans cost at most a twenty-fifth of a
// processor. A command may write more than the limit between two scans; the last scan finds
// that, see end.
//
// It pauses before its first scan. The previous command ended with a scan, and a scan that
// opens an inaccessible directory while the command starts would race with commands that
// begin by opening it.
func (d *disk) watch(over chan<- string, done <-chan struct{}) {
	var before Use     // the free space at the last scan
	var next time.Time // of the next scan in any case
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

// free returns the free space of the file systems of the directories; 0 where it is
// unknown.
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

// end scans once more after a command and records the usage in the result.
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

// below adds up all files below a directory handle. A file that disappears meanwhile does
// not count.
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

// openClosed opens a directory for listing. A directory that the command made inaccessible
// stays open until closeAgain, as its contents can still grow. Meanwhile its sticky bit is
// inverted, which distinguishes this mode from a mode that the command sets. A mode that
// the command sets between the read and the write of one of the two changes, some
// microseconds, is lost.
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
		closeAgain = func() { // only if the mode is unchanged
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
