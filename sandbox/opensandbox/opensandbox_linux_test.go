package opensandbox

import (
	"flag"
	"os"
	"testing"

	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

// With -update the suite writes the backend's column of the table of hostile inputs.
var _ = flag.Bool("update", false, "write testdata")

func TestMain(m *testing.M) {
	Reexec()
	sandboxtest.Probe()
	scratch.InMemory()
	// The checks of the suite mostly wait.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	s := newServer(t)
	sandboxtest.TestBackend(t, func(t *testing.T) sandbox.Backend { return s.backend(t) })
}
