//go:build engine

package docker

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/internal/sandbox/execd"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// takeAll makes tail store all its input.
const takeAll = "head -c 300000000 /dev/zero | tail >/dev/null; exit 7"

// processes returns the processes of this program in a container, as the host sees them.
func (x *box) processes(t *testing.T, named string) (pids []int) {
	t.Helper()
	names := must.Get(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(line), named) {
			continue
		}
		group, err := os.ReadFile(filepath.Join(filepath.Dir(name), "cgroup"))
		if err == nil && strings.Contains(string(group), x.c.id) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// TestMemoryTakesDaemon kills the daemon as the memory killer sometimes does after a
// command that used all memory: each running command reports that memory ran out, and the
// next one finds the files, in another container. If no memory ran out, the sandbox is
// lost.
func TestMemoryTakesDaemon(t *testing.T) {
	b := backend(t)
	x := open(t, b, sandbox.Spec{Limits: sandbox.Limits{Memory: 64 << 20}})
	kill := func(named string) {
		t.Helper()
		pids := x.processes(t, named)
		if len(pids) == 0 {
			t.Fatalf("there is no process %q", named)
		}
		for _, pid := range pids {
			must.Do(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	first, sock := x.c.id, x.c.folder
	if e := sh(t, x, takeAll); e.Ended != sandbox.OutOfMem {
		t.Fatalf("a command that takes all memory: %+v", e)
	}
	var commands sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		commands.Go(func() {
			e, err := x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo " + name + " > " + name + "; sleep 1000"}, Timeout: patience})
			if err != nil || e.Ended != sandbox.OutOfMem || !strings.Contains(string(e.Stderr.Bytes()), "as this command left them") {
				t.Errorf("a command whose daemon is killed: %v, %+v", err, e)
			}
		})
	}
	until(t, "the commands have begun", func() bool {
		return size(t, filepath.Join(x.files.Name(), "a"))+size(t, filepath.Join(x.files.Name(), "b")) == 4
	})
	kill(execd.Name + "\x00serve\x00")
	commands.Wait()
	if e := sh(t, x, "cat a b"); string(e.Stdout.Bytes()) != "a\nb\n" || x.c.id == first {
		t.Errorf("the next command: %q, %s, in another container: %t", e.Stdout.Bytes(), e.Stderr.Bytes(), x.c.id != first)
	}
	if _, err := os.Stat(sock); !os.IsNotExist(err) {
		t.Errorf("the folder of the container before is left: %v", err)
	}
	// In a container whose memory has not run out, the sandbox is lost.
	kill(execd.Name + "\x00serve\x00")
	if _, err := x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); err == nil || !strings.Contains(err.Error(), sandbox.ErrLost.Error()) {
		t.Errorf("a command whose daemon is killed by another: %v", err)
	}
}

// TestNoExclusion: a command cannot exclude itself from the memory killer.
func TestNoExclusion(t *testing.T) {
	x := open(t, backend(t), sandbox.Spec{})
	e := sh(t, x, "for n in 999 0 -1 -1000; do echo $n > /proc/self/oom_score_adj && echo excluded; done; echo end")
	if got := string(e.Stdout.Bytes()); got != "end\n" {
		t.Errorf("a command says of itself: %q", got)
	}
}
