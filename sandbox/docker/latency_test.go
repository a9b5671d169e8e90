//go:build engine

package docker

import (
	"os/exec"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// mostTimes is how much longer a command through a daemon may take than one that this
// process starts itself.
const mostTimes = 3

// TestLatency compares the two on a program that does nothing. Each in turn, so that what
// else the machine does is the same for both; the least counts, because a machine that is
// busy only adds, and more to a command of four processes than to one of two. Where it is too
// busy for one least, the next round has another; what takes too long takes it in each.
func TestLatency(t *testing.T) {
	x := open(t, backend(t), sandbox.Spec{})
	program := must.Get(exec.LookPath("busybox"))(t) // that of the image
	var ratio float64
	for round := range 5 {
		through, plain := time.Hour, time.Hour
		for range 600 {
			began := time.Now()
			e, err := x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"/bin/busybox", "true"}})
			if err != nil || e.Code != 0 {
				t.Fatal(e, err)
			}
			through = min(through, time.Since(began))
			began = time.Now()
			must.Do(t, exec.Command(program, "true").Run())
			plain = min(plain, time.Since(began))
		}
		ratio = float64(through) / float64(plain)
		t.Logf("round %d: %v through the daemon, %v plain: %.2f times", round, through, plain, ratio)
		if ratio <= mostTimes {
			return
		}
	}
	t.Errorf("a command through the daemon takes %.2f times a plain one, more than %d", ratio, mostTimes)
}
