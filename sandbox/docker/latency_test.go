//go:build engine

package docker

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/rathcluster/rath/sandbox"
)

// mostTimes is how much longer a command through a daemon may take than one that this
// process starts itself.
const mostTimes = 3

// TestLatency compares the two on a program that does nothing. Each in turn, so that what
// else the machine does is the same for both; the median of three rounds counts, because
// a machine that is busy hits a command of four processes harder than one of two.
func TestLatency(t *testing.T) {
	x := open(t, backend(t), sandbox.Spec{})
	program, err := exec.LookPath("busybox") // that of the image
	if err != nil {
		t.Fatal(err)
	}
	var ratios []float64
	for range 3 {
		var through, plain []time.Duration
		for range 200 {
			began := time.Now()
			e, err := x.Exec(t.Context(), sandbox.Cmd{Argv: []string{"/bin/busybox", "true"}})
			if err != nil || e.Code != 0 {
				t.Fatal(e, err)
			}
			through = append(through, time.Since(began))
			began = time.Now()
			if err := exec.Command(program, "true").Run(); err != nil {
				t.Fatal(err)
			}
			plain = append(plain, time.Since(began))
		}
		slices.Sort(through)
		slices.Sort(plain)
		half := len(plain) / 2
		ratio := float64(through[half]) / float64(plain[half])
		t.Logf("%v through the daemon, %v plain: %.2f times", through[half], plain[half], ratio)
		ratios = append(ratios, ratio)
	}
	slices.Sort(ratios)
	if ratios[1] > mostTimes {
		t.Errorf("a command through the daemon takes %.2f times a plain one, more than %d", ratios[1], mostTimes)
	}
}
