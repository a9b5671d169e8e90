package docker

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rathcluster/rath/internal/sandbox/proc"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestSweepFolders: the folder of an ended process is removed, also if the process was
// killed before it wrote a file. Folders of this process, and of leftover containers, stay.
func TestSweepFolders(t *testing.T) {
	state := t.TempDir()
	dead := exec.Command("/proc/self/exe", "-test.run=^$")
	must.Do(t, dead.Start())
	folder := func(pid int, name string) string {
		dir := filepath.Join(state, proc.Folder(pid)+name)
		must.Do(t, os.Mkdir(dir, 0o700))
		return dir
	}
	left, held, mine := folder(dead.Process.Pid, "left"), folder(dead.Process.Pid, "held"), folder(os.Getpid(), "mine")
	must.Do(t, dead.Process.Kill())
	_ = dead.Wait() // it was killed
	b := newDriver(&Options{State: state})
	must.Report(t, b.sweepFolders(map[string]bool{held: true}))
	for dir, want := range map[string]bool{left: false, held: true, mine: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
