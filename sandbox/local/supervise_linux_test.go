package local

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestSupervisorIsEarly: a supervisor runs before the packages are initialized that would
// make the start of each supervisor slow.
func TestSupervisorIsEarly(t *testing.T) {
	null := must.Get(os.Open(os.DevNull))(t) // its control socket: there is no host
	defer null.Close()
	var trace bytes.Buffer
	cmd := reexec(nil, []*os.File{null})
	cmd.Env = append(cmd.Env, "GODEBUG=inittrace=1")
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatalf("a supervisor without a host: %v\n%s", err, &trace)
	}
	first := func(name string) bool { return strings.Contains(trace.String(), "\ninit "+name+" @") }
	if !first("os") {
		t.Errorf("the trace does not say what was initialised:\n%s", &trace)
	}
	for _, name := range []string{"net", "path/filepath", "os/exec", "regexp", "testing", "github.com/rathcluster/rath/sandbox"} {
		if first(name) {
			t.Errorf("package %s is initialised before a supervisor is at work", name)
		}
	}
}
