//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func init() { children["poison"] = poisonChild }

// poisonWords is the last that a task writes which ends its process.
const poisonWords = "fatal: the library of the task gave up"

// poisonExit is the exit status of a process that such a task ends.
const poisonExit = 3

// poisonChild is a node program whose workflow "poison" ends the process, and whose
// workflow "healthy" makes three steps.
func poisonChild() error {
	poison := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		time.Sleep(200 * time.Millisecond) // the others of the node are at work by then
		fmt.Fprintln(os.Stderr, poisonWords)
		os.Exit(poisonExit)
		return s, nil
	})
	healthy := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		for i := range 3 {
			_, err := flow.Do(ctx, fmt.Sprint("part", i), func(context.Context) (int, error) {
				time.Sleep(time.Second)
				return i, nil
			}, tool.ReadOnly)
			if err != nil {
				return s, err
			}
		}
		return s, nil
	})
	node.Main(
		flow.Registration{Name: "poison", Revision: "1", New: func() flow.Workflow { return poison }},
		flow.Registration{Name: "healthy", Revision: "1", New: func() flow.Workflow { return healthy }},
	)
	return nil
}

// TestPoison runs three tasks that end their process beside 40 healthy ones on three nodes:
// 40 succeed, and three wait for review with the exit and the last output of their node.
// The fleet continues and names the runs.
func TestPoison(t *testing.T) {
	const poisoned, others = 3, 40
	program := must.Get(os.Executable())(t)
	d := newDesk(t, childEnv+"=poison")
	dev := d.start("dev", "--nodes", "3", "--node", program, "--port", "4229")
	t.Cleanup(func() {
		_ = dev.cmd.Process.Signal(syscall.SIGTERM)
		dev.wait()
	})
	dev.until("fleet", func() bool { return strings.Contains(dev.stdout.String(), "\ntry ") })
	for i := range poisoned {
		d.rath("submit", "poison", "-m", "x", "--id", fmt.Sprint("poison", i)).want(t, 0)
	}
	for i := range others {
		d.rath("submit", "healthy", "-m", "x", "--id", fmt.Sprint("healthy", i)).want(t, 0)
	}
	states := func() map[string]int {
		n := map[string]int{}
		all := d.rath("ps", "--limit", "0", "--format", "jsonl")
		all.want(t, 0)
		for line := range strings.Lines(all.stdout) {
			var r messages.RunInfo
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			n[r.Workflow+" "+string(r.State)]++
		}
		return n
	}
	dev.until("ends and reviews", func() bool {
		n := states()
		if n["healthy needs_review"]+n["healthy failed"] > 0 {
			t.Fatalf("healthy runs suffer: %v\n%s", n, dev.stderr.String())
		}
		return n["healthy succeeded"] == others && n["poison needs_review"] == poisoned
	})
	for i := range poisoned {
		why := d.rath("why", fmt.Sprint("poison", i))
		why.want(t, 0)
		text := strings.Join(strings.Fields(why.stdout), " ") // lines are wrapped
		for _, want := range []string{"the last 3 times while it ran there alone", "exit status 3: " + poisonWords} {
			if !strings.Contains(text, want) {
				t.Errorf("want %q: %v", want, why)
			}
		}
	}
	for _, want := range []string{"died: exit status 3", poisonWords, "it executed ", "poison0"} {
		if !strings.Contains(dev.stderr.String(), want) {
			t.Errorf("rath dev does not print %q:\n%s", want, dev.stderr.String())
		}
	}
	d.rath("cluster", "audit").want(t, 0)
}
