package local

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestSupervisorIsEarly: a supervisor is at work before the packages are initialised that
// make the start of a program long, as each of them would in each supervisor.
func TestSupervisorIsEarly(t *testing.T) {
	null := must.Get(os.Open(os.DevNull))(t) // its control: there is no host
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
