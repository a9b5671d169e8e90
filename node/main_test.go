package node

import (
	"os"
	"testing"

	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/sandbox/local"
)

// asNode makes this test binary a node, for tests that need a process.
const asNode = "RATH_TEST_AS_NODE"

func TestMain(m *testing.M) {
	local.Reexec()
	if os.Getenv(asNode) != "" {
		os.Exit(runMain(os.Args[1:], os.Getenv, os.Stderr, RouteHere, nil))
	}
	natstest.Main(m)
}
