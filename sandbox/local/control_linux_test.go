package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/sandbox/proc"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// TestSupervisorAtRest: one supervisor runs the commands of a sandbox one after the other,
// the death of an idle supervisor fails no command, and no supervisor outlives the sandbox.
func TestSupervisorAtRest(t *testing.T) {
	s := must.Get(New(&Options{State: t.TempDir()}).Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationProcess}))(t)
	b := s.(*box)
	run := func() {
		t.Helper()
		e, err := b.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo out; cat; pwd >&2"}, Stdin: strings.NewReader("in"), Dir: ""})
		if err != nil || string(e.Stdout.Bytes()) != "out\nin" || string(e.Stderr.Bytes()) != b.dir+"\n" {
			t.Fatalf("%v, %+v", err, e)
		}
	}
	for range 5 {
		run()
	}
	runs := must.Get(os.ReadFile(filepath.Join(b.own, runsFile)))(t)
	// A command that ended at once is not recorded.
	if n := strings.Count(string(runs), "\n"); n == 0 || n > 6 {
		t.Errorf("five commands and their supervisor make %d processes", n)
	}
	first := b.ready.list[0]
	first.kill()
	<-first.dead
	run()
	second := b.ready.list[0]
	if second == first {
		t.Error("the dead one waits for commands")
	}
	seen, err := readRuns(filepath.Join(b.own, runsFile))
	must.Report(t, err)
	must.Do(t, s.Close())
	for _, r := range seen {
		if now, ok := proc.Started(r.pid); ok && now == r.started {
			t.Error("a supervisor outlives its sandbox")
		}
	}
}
