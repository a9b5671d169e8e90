//go:build e2e && linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// programs are other builds of this test program, as nodes and routers; each is built
// once. TestMain removes them.
var programs struct {
	mu  sync.Mutex
	dir string
	all map[string]string // by name
}

// nextVersion is the version that nodes of the next release name.
const nextVersion = "v9.9.0"

// module is the path of the module, in which the linker sets variables.
const module = "github.com/rathcluster/rath/"

// nextProgram returns the file of a build that names another version.
func nextProgram(t *testing.T) string {
	return program(t, "next", "-tags=e2e", "-ldflags=-X "+module+"node.version="+nextVersion)
}

// programWithout returns the file of a build without a protection, see
// internal/core/protection.
func programWithout(t *testing.T, protection string) string {
	return program(t, protection, "-tags=e2e", "-ldflags=-X "+module+"internal/core/protection.without="+protection)
}

func program(t *testing.T, name string, flags ...string) string {
	t.Helper()
	programs.mu.Lock()
	defer programs.mu.Unlock()
	if file := programs.all[name]; file != "" {
		return file
	}
	if programs.dir == "" {
		var err error
		if programs.dir, err = os.MkdirTemp("", "rath-e2e-nodes-"); err != nil {
			t.Fatal(err)
		}
		programs.all = map[string]string{}
	}
	file := filepath.Join(programs.dir, name)
	args := append([]string{"test", "-c", "-vet=off", "-o", file}, flags...)
	if out, err := exec.CommandContext(t.Context(), "go", append(args, ".")...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	programs.all[name] = file
	return file
}

func removePrograms() error { return os.RemoveAll(programs.dir) } // "" is nothing
