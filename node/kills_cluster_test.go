//go:build engine && cluster

package node

import (
	"bufio"
	"cmp"
	"os"
	"os/exec"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestHundredRunsInPods is TestHundredRuns with a pod for each sandbox, on the machine that
// the tests of sandbox/kubernetes play (TestMachine). In the end neither a pod nor a secret
// is left. It is run by .ci/cluster kills.
func TestHundredRunsInPods(t *testing.T) {
	machine := exec.Command(os.Getenv("RATH_TEST_MACHINE"), "-test.run=^TestMachine$", "-test.v")
	machine.Stderr = os.Stderr
	input := must.Get(machine.StdinPipe())(t)
	output := must.Get(machine.StdoutPipe())(t)
	if err := machine.Start(); err != nil {
		t.Fatalf("RATH_TEST_MACHINE: %v; run .ci/cluster kills", err)
	}
	lines := bufio.NewScanner(output)
	for lines.Scan() && lines.Text() != "the machine is up" {
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() {
			t.Log(lines.Text())
		}
	}()
	// swept ends the machine, which waits until no sandbox has leftovers.
	swept := func() {
		input.Close()
		<-drained
		if err := machine.Wait(); err != nil {
			t.Errorf("the machine: %v", err)
		}
	}
	t.Cleanup(func() {
		if machine.ProcessState == nil {
			swept()
		}
	})
	killRuns(t, "kubernetes", cmp.Or(*runsFlag, 100), cmp.Or(*killsFlag, 12), "0.2", []string{
		"-sandbox-kubernetes-config", os.Getenv("KUBECONFIG"), "-sandbox-kubernetes-namespace", "sandboxes",
		"-sandbox-kubernetes-image", "example.org/commands:latest", "-sandbox-kubernetes-node-image", "example.org/node:test",
	}, func(string) { swept() })
}
