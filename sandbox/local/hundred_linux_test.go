package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/confinement"
	"github.com/rathcluster/rath/internal/proc"
	"github.com/rathcluster/rath/sandbox"
)

const (
	manySandboxes = 100
	// sandboxMemory is the most that a sandbox at work may take besides its command.
	sandboxMemory = 6 << 20
)

// TestHundredSandboxes has 100 sandboxes work at once, each a command that waits, and
// bounds what a sandbox takes of memory. Afterwards nothing is left.
func TestHundredSandboxes(t *testing.T) {
	state := t.TempDir()
	b := newDriver(&Options{State: state})
	boxes := make([]sandbox.Sandbox, manySandboxes)
	for i := range boxes {
		var err error
		if boxes[i], err = b.Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationProcess}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i, x := range boxes {
		wg.Go(func() {
			e, err := x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "touch there; sleep 1000 & read line; echo done"}, Stdin: waits{t.Context().Done()}})
			if err != nil && !strings.Contains(err.Error(), sandbox.ErrClosed.Error()) || err == nil && e.Ended != sandbox.Cancelled {
				t.Errorf("sandbox %d: %+v, %v", i, e, err)
			}
		})
	}
	for _, x := range boxes {
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			if _, err := x.Files().Stat(t.Context(), "there"); err == nil {
				break
			}
			if time.Since(began) > time.Minute {
				t.Fatal("a command did not start")
			}
		}
	}
	supervisors, memory := 0, int64(0)
	for _, p := range proc.Descendants(os.Getpid()) {
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID)); err == nil && strings.HasPrefix(string(name), confinement.Name) {
			supervisors++
			memory += proportional(t, p.PID)
		}
	}
	if supervisors != manySandboxes {
		t.Errorf("%d supervisors for %d sandboxes", supervisors, manySandboxes)
	}
	each := memory / manySandboxes
	t.Logf("%d sandboxes at work: %d kB each besides its command, bound %d kB", manySandboxes, each>>10, sandboxMemory>>10)
	if each > sandboxMemory {
		t.Errorf("a sandbox takes %d bytes, more than %d", each, sandboxMemory)
	}
	for _, x := range boxes {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if left := proc.Descendants(os.Getpid()); len(left) > 0 {
		t.Errorf("%d processes are left", len(left))
	}
	if left, err := filepath.Glob(filepath.Join(state, "*")); err != nil || len(left) > 0 {
		t.Errorf("left in the state directory: %v, %v", left, err)
	}
}

// waits is an input that never says anything.
type waits struct{ done <-chan struct{} }

func (w waits) Read([]byte) (int, error) {
	<-w.done
	return 0, os.ErrClosed
}

// proportional is the memory of a process, what it shares with others in parts.
func proportional(t *testing.T, pid int) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var kB int64
		if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kB); n == 1 {
			return kB << 10
		}
	}
	t.Fatal("smaps_rollup tells no Pss")
	return 0
}
