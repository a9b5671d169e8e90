package node

import (
	"os"
	"testing"

	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/sandbox/local"
)

// asNode makes this test binary a node, for tests that need a process, or a
// router if it says so.
const asNode = "RATH_TEST_AS_NODE"

func TestMain(m *testing.M) {
	local.Reexec()
	switch os.Getenv(asNode) {
	case "":
	case "router":
		os.Exit(runMain(os.Args[1:], os.Getenv, os.Stderr, RouteOnly, nil))
	default:
		os.Exit(runMain(os.Args[1:], os.Getenv, os.Stderr, RouteHere, nil))
	}
	natstest.Main(m)
}
