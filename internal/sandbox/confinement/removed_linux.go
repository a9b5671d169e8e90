package confinement

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/sandbox/proc"
)

// A removed file uses its space until the last process closes it, but is in no directory.
// The kernel lists it among the open files of each process, and among its mappings. A file
// that is held only by a message in transit in a socket is not listed anywhere.

// inode identifies a file, independent of its name.
type inode struct{ dev, ino uint64 }

// removedFiles adds the removed files that the commands below this process hold.
func (c *count) removedFiles() {
	seen := make(map[inode]bool)
	for _, pid := range below(os.Getpid()) {
		process := "/proc/" + strconv.Itoa(pid)
		// Threads may have files of their own.
		for i, tid := range threads(pid) {
			if i > 0 && sameFiles(pid, tid) {
				continue
			}
			if c.openFiles(process+"/task/"+strconv.Itoa(tid)+"/fd", seen); c.full() {
				return
			}
		}
		if c.mappedFiles(process, seen); c.full() {
			return
		}
	}
}

// take counts a removed file once.
func (c *count) take(id inode, bytes int64, seen map[inode]bool) {
	if !c.devices[id.dev] || seen[id] {
		return
	}
	seen[id] = true
	c.Bytes += bytes
	c.removed += bytes
	c.Files++
}

// openFiles adds the removed files of a list of open files.
func (c *count) openFiles(list string, seen map[inode]bool) {
	f, err := os.Open(list)
	if err != nil {
		c.hidden = c.hidden || errors.Is(err, fs.ErrPermission) && hasMemory(path.Dir(list))
		return // the process has ended
	}
	defer f.Close()
	for !c.full() {
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(int(f.Fd()), name, &st, 0) == nil && st.Nlink == 0 {
				c.take(inode{st.Dev, st.Ino}, st.Blocks*512, seen)
			}
		}
		if err != nil || len(names) == 0 {
			return
		}
	}
}

// hasMemory reports whether a process, or a thread of it, has not begun to end. The kernel
// takes the memory of a process first, and shows its open files to nobody but root then.
func hasMemory(process string) bool {
	size, err := os.ReadFile(process + "/statm")
	return err == nil && !bytes.HasPrefix(size, []byte("0 "))
}

// mappedFiles adds the removed files of the mappings of a process. Where this process may
// not query the file of a mapping, as without privileges, it counts the mapped part.
func (c *count) mappedFiles(process string, seen map[inode]bool) {
	f, err := os.Open(process + "/maps")
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan() && !c.full(); {
		// "7f12a000-7f13b000 rw-s 00001000 fd:01 4711   /workspace/f (deleted)"
		if !bytes.HasSuffix(lines.Bytes(), []byte(" (deleted)")) {
			continue
		}
		line := lines.Text()
		var from, to, offset, ino uint64
		var mode string
		var major, minor uint32
		if n, _ := fmt.Sscanf(line, "%x-%x %s %x %x:%x %d", &from, &to, &mode, &offset, &major, &minor, &ino); n != 7 {
			continue
		}
		var st unix.Stat_t
		at, _, _ := strings.Cut(line, " ")
		if unix.Stat(process+"/map_files/"+at, &st) == nil {
			if st.Nlink == 0 {
				c.take(inode{st.Dev, st.Ino}, st.Blocks*512, seen)
			}
			continue
		}
		c.take(inode{unix.Mkdev(major, minor), ino}, int64(offset+to-from), seen)
	}
}

// below lists the descendants of a process. A kernel without a list of each thread's
// children lists them among all other processes.
func below(pid int) (list []int) {
	todo := []int{pid}
	for len(todo) > 0 {
		parent := todo[0]
		todo = todo[1:]
		for _, tid := range threads(parent) {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, tid))
			if err != nil && parent == pid && tid == pid {
				for _, p := range proc.Descendants(pid) {
					list = append(list, p.PID)
				}
				return list
			}
			for f := range bytes.FieldsSeq(data) {
				if child, err := strconv.Atoi(string(f)); err == nil {
					todo, list = append(todo, child), append(list, child)
				}
			}
		}
	}
	return list
}

// threads lists the threads of a process.
func threads(pid int) (list []int) {
	names, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil
	}
	for _, n := range names {
		if tid, err := strconv.Atoi(n.Name()); err == nil {
			list = append(list, tid)
		}
	}
	return list
}

// kcmpFiles makes kcmp(2) compare the tables of open files.
const kcmpFiles = 2

// sameFiles reports whether two threads share one table of open files.
func sameFiles(a, b int) bool {
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpFiles, 0, 0, 0)
	return errno == 0 && r == 0
}
