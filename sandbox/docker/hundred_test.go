//go:build engine

package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

const (
	// manyContainers work concurrently. An engine starts seven a second on two processors.
	manyContainers = 100
	// containerMemory is the maximum memory of a working container in addition to its
	// command: its two daemons, the supervisor, and the engine's processes for it on the
	// host.
	containerMemory = 20 << 20
)

// TestHundredContainers has containers work concurrently, each with a waiting command, and
// bounds the memory of each. Afterwards no container is left.
func TestHundredContainers(t *testing.T) {
	b := backend(t)
	must.Get(b.Probe(t.Context()))(t)
	began := time.Now()
	boxes := make([]*box, manyContainers)
	var opening sync.WaitGroup
	next := make(chan int)
	for range 8 {
		opening.Go(func() {
			for i := range next {
				sb, err := b.Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationContainer})
				if err != nil {
					t.Error(err)
					continue
				}
				boxes[i] = sb.(*box)
			}
		})
	}
	for i := range boxes {
		next <- i
	}
	close(next)
	opening.Wait()
	if t.Failed() {
		t.FailNow()
	}
	opened := time.Since(began)
	var commands sync.WaitGroup
	for i, x := range boxes {
		commands.Go(func() {
			_, err := x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "touch there; sleep 1000 & sleep 1000"}, Timeout: 10 * patience})
			if err == nil || !strings.Contains(err.Error(), sandbox.ErrClosed.Error()) {
				t.Errorf("container %d: %v", i, err)
			}
		})
	}
	ids := make(map[string]bool)
	for _, x := range boxes {
		ids[x.c.id] = true
		until(t, "each command begins", func() bool {
			_, err := x.Files().Stat(t.Context(), "there")
			return err == nil
		})
	}
	each := memoryOf(t, ids) / manyContainers
	t.Logf("%d containers at work, opened in %v: %d kB each besides the command, bound %d kB", manyContainers, opened.Round(time.Millisecond), each>>10, containerMemory>>10)
	if each > containerMemory {
		t.Errorf("a container takes %d bytes, more than %d", each, containerMemory)
	}
	began = time.Now()
	var closing sync.WaitGroup
	for _, x := range boxes {
		closing.Go(func() {
			must.Report(t, x.Close())
		})
	}
	closing.Wait()
	commands.Wait()
	t.Logf("closed in %v", time.Since(began).Round(time.Millisecond))
	// The engine has removed a container before its own processes for it have ended.
	until(t, "no process is left", func() bool { return memoryOf(t, ids) == 0 })
	list := must.Get(b.engine.list(t.Context(), labelLease))(t)
	for _, c := range list {
		if ids[c.ID] {
			t.Errorf("%s is left", c.Name)
		}
	}
	if folders, err := filepath.Glob(filepath.Join(b.o.State, "box-*")); err != nil || len(folders) > 0 {
		t.Errorf("folders are left: %v, %v", folders, err)
	}
	mounts := must.Get(os.ReadFile("/proc/self/mounts"))(t)
	for id := range ids {
		if strings.Contains(string(mounts), id) {
			t.Errorf("a mount of %s is left", id)
		}
	}
}

// memoryOf returns the memory of containers without their commands: of the processes in
// their control groups and of the engine's processes that name them. Shared memory counts
// proportionally.
func memoryOf(t *testing.T, ids map[string]bool) int64 {
	t.Helper()
	names := must.Get(filepath.Glob("/proc/[0-9]*"))(t)
	var sum int64
	for _, p := range names {
		// A process that ends meanwhile uses no memory.
		groups, _ := os.ReadFile(p + "/cgroup")
		line, _ := os.ReadFile(p + "/cmdline")
		comm, _ := os.ReadFile(p + "/comm")
		text := string(groups) + string(line)
		for id := range ids {
			if !strings.Contains(text, id) {
				continue
			}
			if name := strings.TrimSpace(string(comm)); name == "sh" || name == "sleep" || name == "busybox" {
				break
			}
			data, _ := os.ReadFile(p + "/smaps_rollup")
			for l := range strings.Lines(string(data)) {
				var kB int64
				if n, _ := fmt.Sscanf(l, "Pss: %d kB", &kB); n == 1 {
					sum += kB << 10
				}
			}
			break
		}
	}
	return sum
}
