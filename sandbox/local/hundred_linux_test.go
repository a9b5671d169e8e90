package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/confinement"
	"github.com/rathcluster/rath/internal/sandbox/proc"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

const (
	manySandboxes = 100
	// sandboxMemory is the maximum memory of a working sandbox in addition to its command.
	sandboxMemory = 6 << 20
	// sandboxesTake is the maximum processor time of all sandboxes in sandboxesWait, while
	// their commands wait.
	sandboxesWait = 5 * time.Second
	sandboxesTake = 5 * time.Second
)

// TestHundredSandboxes has 100 sandboxes work concurrently, each with a waiting command,
// and bounds the memory of a sandbox. Afterwards no process is left.
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
	started := func(x sandbox.Sandbox) {
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			if _, err := x.Files().Stat(t.Context(), "there"); err == nil {
				return
			}
			if time.Since(began) > 5*time.Minute {
				t.Fatal("a command did not start")
			}
		}
	}
	// Start a few at a time: a hundred would use up the machine for other tests.
	const starting = 8
	var wg sync.WaitGroup
	for i, x := range boxes {
		if i >= starting {
			started(boxes[i-starting])
		}
		wg.Go(func() {
			e, err := x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "touch there; sleep 1000 & read line; echo done"}, Stdin: waits{t.Context().Done()}, Timeout: time.Hour})
			if err != nil && !strings.Contains(err.Error(), sandbox.ErrClosed.Error()) || err == nil && e.Ended != sandbox.Cancelled {
				t.Errorf("sandbox %d: %+v, %v", i, e, err)
			}
		})
	}
	for _, x := range boxes[manySandboxes-starting:] {
		started(x)
	}
	var supervisors []int
	for _, p := range proc.Descendants(os.Getpid()) {
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID)); err == nil && strings.HasPrefix(string(name), confinement.Name) {
			supervisors = append(supervisors, p.PID)
		}
	}
	if len(supervisors) != manySandboxes {
		t.Fatalf("%d supervisors for %d sandboxes", len(supervisors), manySandboxes)
	}
	var used time.Duration
	for _, pid := range supervisors {
		used -= processorTime(t, pid)
	}
	time.Sleep(sandboxesWait)
	var memory int64
	for _, pid := range supervisors {
		used += processorTime(t, pid)
		memory += proportional(t, pid)
	}
	t.Logf("while their commands wait %v they take %v of a processor, bound %v", sandboxesWait, used, sandboxesTake)
	if used > sandboxesTake {
		t.Errorf("sandboxes whose commands wait take %v of a processor in %v", used, sandboxesWait)
	}
	each := memory / manySandboxes
	t.Logf("%d sandboxes at work: %d kB each besides its command, bound %d kB", manySandboxes, each>>10, sandboxMemory>>10)
	if each > sandboxMemory {
		t.Errorf("a sandbox takes %d bytes, more than %d", each, sandboxMemory)
	}
	for _, x := range boxes {
		must.Report(t, x.Close())
	}
	wg.Wait()
	if left := proc.Descendants(os.Getpid()); len(left) > 0 {
		t.Errorf("%d processes are left", len(left))
	}
	if left, err := filepath.Glob(filepath.Join(state, "*")); err != nil || len(left) > 0 {
		t.Errorf("left in the state directory: %v, %v", left, err)
	}
}

// waits is an input without data.
type waits struct{ done <-chan struct{} }

func (w waits) Read([]byte) (int, error) {
	<-w.done
	return 0, os.ErrClosed
}

// processorTime returns the processor time of a process, which Linux counts in hundredths
// of a second.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must.Do(t, err)
	f := strings.Fields(string(data)) // the supervisor's name has no space
	user, err := strconv.Atoi(f[13])
	system, err2 := strconv.Atoi(f[14])
	if err != nil || err2 != nil {
		t.Fatalf("%s: %v, %v", data, err, err2)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// proportional returns the memory of a process; shared memory counts proportionally.
func proportional(t *testing.T, pid int) int64 {
	t.Helper()
	data := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid)))(t)
	for line := range strings.Lines(string(data)) {
		var kB int64
		if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kB); n == 1 {
			return kB << 10
		}
	}
	t.Fatal("smaps_rollup tells no Pss")
	return 0
}
