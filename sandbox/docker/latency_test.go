//go:build engine

package docker

import (
	"os/exec"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// mostTimes is the maximum ratio of the time of a command through a daemon to the time of a
// command that this process starts itself.
const mostTimes = 3

// TestLatency compares the two on a program without work. They alternate, so that other
// load on the machine affects both. The minimum counts, because load only adds time, and
// more to a command of four processes than to one of two. If the machine is too busy for
// one minimum, the next round measures again; a real regression shows in every round.
func TestLatency(t *testing.T) {
	x := open(t, backend(t), sandbox.Spec{})
	program := must.Get(exec.LookPath("busybox"))(t) // the image's busybox
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
