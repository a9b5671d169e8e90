//go:build unix

package local_test

import (
	"flag"
	"os"
	"testing"

	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

// With -update the suite writes the backend's column of the table of hostile inputs.
var _ = flag.Bool("update", false, "write testdata")

func TestMain(m *testing.M) {
	local.Reexec()
	sandboxtest.Probe()
	scratch.InMemory()
	local.RunHost()
	// The checks of the suite mostly wait.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	for _, level := range []sandbox.Isolation{"", sandbox.IsolationProcess} {
		name := "strongest"
		if level != "" {
			name = string(level)
		}
		t.Run(name, func(t *testing.T) {
			sandboxtest.TestBackend(t, func(t *testing.T) sandbox.Backend {
				return local.New(&local.Options{State: t.TempDir(), Isolation: level})
			})
		})
	}
}
