//go:build e2e && linux

package e2e

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/fleet"
	"github.com/rathcluster/rath/sandbox/local"
)

// children are the programs that this test binary becomes when a test starts
// it as another process.
var children = map[string]func() error{}

const childEnv = "RATH_E2E_CHILD"

func TestMain(m *testing.M) {
	local.Reexec()
	fleet.Child()
	if name := os.Getenv(childEnv); name != "" {
		child, ok := children[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "e2e: no child %q\n", name)
			os.Exit(2)
		}
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if err := errors.Join(os.RemoveAll(built.dir), removePrograms()); err != nil { // "" is nothing
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
	os.Exit(code)
}
