package confinement

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestRemovedFiles has this process and a child hold removed files: each counts once,
// however often it is held, and a file of another disk does not count.
func TestRemovedFiles(t *testing.T) {
	const size = 1 << 20
	removed := func(name string) *os.File {
		t.Helper()
		f := must.Get(os.OpenFile(filepath.Join(t.TempDir(), name), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600))(t)
		t.Cleanup(func() { f.Close() })
		must.Get(f.Write(make([]byte, size)))(t)
		must.Do(t, os.Remove(f.Name()))
		return f
	}
	var st unix.Stat_t
	must.Do(t, unix.Stat(t.TempDir(), &st))
	look := func(devices map[uint64]bool, at func(*count, map[inode]bool)) *count {
		c := &count{most: Use{math.MaxInt64, math.MaxInt64}, devices: devices}
		at(c, make(map[inode]bool))
		return c
	}
	here := map[uint64]bool{st.Dev: true}
	own := func(c *count, seen map[inode]bool) {
		c.openFiles("/proc/self/fd", seen)
		c.mappedFiles("/proc/self", seen)
	}
	check := func(what string, before, after *count, files int64) {
		t.Helper()
		if got := after.Files - before.Files; got != files || after.Bytes-before.Bytes != files*size || after.removed != after.Bytes {
			t.Errorf("%s: %d files of %d bytes, want %d of %d", what, got, after.Bytes-before.Bytes, files, files*size)
		}
	}

	before := look(here, own)
	twice := removed("open twice")
	again := must.Get(unix.Dup(int(twice.Fd())))(t)
	unix.CloseOnExec(again)
	defer unix.Close(again)
	mapped := removed("mapped")
	for range 2 {
		m := must.Get(unix.Mmap(int(mapped.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED))(t)
		defer unix.Munmap(m)
	}
	check("open and mapped", before, look(here, own), 2)
	mapped.Close()
	check("mapped and closed", before, look(here, own), 2)
	check("another disk", before, look(map[uint64]bool{}, own), -before.Files)

	child := exec.Command("sleep", "1000")
	child.ExtraFiles = []*os.File{removed("of a child")}
	must.Do(t, child.Start())
	defer child.Wait() //nolint:errcheck // it is killed
	defer child.Process.Kill()
	child.ExtraFiles[0].Close()
	tree := look(here, func(c *count, _ map[inode]bool) { c.removedFiles() })
	check("a child", &count{}, tree, 1)
	if tree.hidden {
		t.Error("the child could not be looked into")
	}
}

// TestFilesOfEndedProcess: the files of a process that has ended and is not waited for are
// refused like those of a program that may not be read, and are not hidden.
func TestFilesOfEndedProcess(t *testing.T) {
	child := exec.Command("true")
	must.Do(t, child.Start())
	defer child.Wait() //nolint:errcheck // it has ended
	must.Do(t, unix.Waitid(unix.P_PID, child.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
	// Without root's rights, as in a sandbox: for this thread, which ends with the test.
	runtime.LockOSThread()
	must.Do(t, unix.Setfsuid(65534))
	look := func(pid int) *count {
		c := &count{most: Use{math.MaxInt64, math.MaxInt64}}
		c.openFiles(fmt.Sprintf("/proc/%d/fd", pid), nil)
		return c
	}
	if look(child.Process.Pid).hidden {
		t.Error("the files of an ended process count as hidden")
	}
	if !look(1).hidden {
		t.Error("the files of the first process, which root has, do not count as hidden")
	}
}
