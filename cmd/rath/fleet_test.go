//go:build unix

package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/sandbox/local"
)

// devNode matches the line of "dev --nodes" about a node that it started.
var devNode = regexp.MustCompile(`(?m)^node (\w) +pid (\d+) +(n\w+)`)

// TestDevFleet runs a fleet whose dead nodes are replaced: a run waits for a person, a
// node is killed and another drained, a rejected task is handled, and an interrupt ends
// everything.
func TestDevFleet(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("NATS_URL", "")
	script := "-- work --\nnot result: run_shell_command\nuser: \"write\"\ncall: run_shell_command {\"cmd\":\"true\"}\n\n-- other --\n\ndone\n"
	must.Do(t, os.WriteFile("m.txtar", []byte(script), 0o644))
	port := natstest.FreePort(t)
	here := must.Get(local.New(nil).Probe(t.Context()))(t)
	dev := startCommand(t, dir, "dev", "--nodes", "3", "--unsafe", "--script", "m.txtar", "--port", strconv.Itoa(port))
	waitFor(t, func() bool { return strings.Contains(dev.said(), "try  ") })
	nodes := devNode.FindAllStringSubmatch(dev.said(), -1)
	if len(nodes) != 3 {
		t.Fatalf("%d nodes", len(nodes))
	}
	rath := func(line string, want ...string) string {
		t.Helper()
		got := command(t, "rath "+line, dir)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("$ rath %s\n%swant %q", line, got, w)
			}
		}
		return got
	}

	// A run waits for a person while the node that ran it is killed.
	rath(`submit agent --id one --tools run_shell_command -m '{"prompt":"write it","approve":["*"]}'`, "one")
	waitFor(t, func() bool { return strings.Contains(rath("answer"), "0.0.approval") })
	rath("cluster nodes ls", " serving     64/64 ", " relay only  - ", "server ")
	pid := must.Get(strconv.Atoi(nodes[0][2]))(t)
	must.Do(t, syscall.Kill(pid, syscall.SIGKILL))
	for killed := time.Now(); !regexp.MustCompile(`a +NODE +default +dead +- `).MatchString(rath("cluster nodes ls")); time.Sleep(50 * time.Millisecond) {
		if time.Since(killed) > 15*time.Second { // its entry lives for 20 s at least
			t.Fatalf("it is still listed as\n%s", rath("cluster nodes ls"))
		}
	}
	// Each node answers from its own gossip. The dead node's successor has not seen the
	// death, and reports for some seconds that it cannot determine it.
	for _, c := range []struct{ line, want, exit string }{
		{"cluster nodes show " + nodes[0][3], "state        dead", ""},
		{"cluster nodes show " + nodes[0][3], "slots        none", ""},
		{"cluster nodes drain " + nodes[0][3], "node a is dead", "[exit 4]"},
	} {
		waitFor(t, func() bool {
			got := rath(c.line)
			return strings.Contains(got, c.want) && strings.Contains(got, c.exit)
		})
	}
	waitFor(t, func() bool {
		return strings.Contains(dev.said(), "died: killed") && strings.Contains(dev.said(), "takes its place")
	})
	rath("answer one yes --by ann", "continues")
	waitFor(t, func() bool { return strings.Contains(rath("ps"), "succeeded") })
	rath("session replay one --verify", "matches: ")
	rath("answer one yes", "has ended (succeeded)", "[exit 4]")

	// Repeat it, as a run of its own.
	if id := strings.TrimSpace(rath("session rerun one -q --format jsonl")); !strings.Contains(id, "one-r1") {
		t.Errorf("rerun says %q", id)
	}
	waitFor(t, func() bool { return strings.Contains(rath("answer"), "one-r1") })
	rath(`answer one-r1 no --reason "once is enough" --by ann`, "continues")
	waitFor(t, func() bool { return strings.Contains(rath("ps --state succeeded"), "one-r1") })
	rath("show one-r1", "once is enough")

	// A session without an open run takes a message at once.
	rath("submit agent --session talk -m hello --wait -q", "done")
	rath(`session message talk "and thanks"`, "sent to session")
	rath("show talk", "and thanks")

	// A rejected task.
	rath("submit nosuch -m x --id lost --wait", "unknown workflow", "[exit 3]")
	var letters []messages.StoredLetter
	waitFor(t, func() bool {
		letters = nil
		err := json.Unmarshal([]byte(rath("cluster dlq ls --format json -q")), &letters)
		return err == nil && len(letters) == 1
	})
	number := strconv.FormatUint(letters[0].At, 10)
	rath("cluster dlq ls", "USER", "operator", "unknown_workflow", "lost")
	rath("ps", "some tasks were rejected and have no runs", "cluster dlq ls")
	rath("cluster dlq show "+number, "rath.task.default.operator.nosuch", "user     operator", `"input":"x"`)
	rath("cluster dlq retry "+number, "dead letter "+number+" is left as it is", `unknown workflow "nosuch"`, "offers agent", "[exit 3]")
	rath("cluster dlq ls", "lost")
	rath("cluster dlq drop "+number+` --reason "a slip"`, "dropped")
	rath("cluster dlq ls", "no dead letters")
	rath("cluster dlq drop "+number, "[exit 4]")
	rath("submit nosuch -m x --id lost2", "unknown workflow", "[exit 3]")
	rath("cluster dlq ls", "no dead letters")
	rath("submit agent -m another --id one", "this id was used for another task", "[exit 4]")

	// The process of the server has no runs to give away.
	if got := rath("cluster nodes drain server", "relays only", "[exit 4]"); !regexp.MustCompile(`these can be drained: a, b, c\b`).MatchString(got) {
		t.Errorf("it does not say whom to drain:\n%s", got)
	}

	// The processor time of all its processes is measured.
	rath("cluster bench --tasks 3 --in-flight 1", "node a ", "node b ", "node c ", "node server ", "this process ", "3 succeeded")

	// A node drains on request. Its entry may have been renewed while it was at work.
	waitFor(t, func() bool {
		return strings.Contains(rath("cluster nodes show b"), "64 of 64 are free")
	})
	rath("cluster nodes show b", "agent", "serving", "up since", "sandboxes    "+string(here.Isolation))
	rath("cluster nodes drain b --wait", "has ended")
	waitFor(t, func() bool { return strings.Contains(dev.said(), "drained") })
	rath("cluster nodes show b", "not found", "[exit 3]")
	rath("submit agent -m more --wait -q", "done")

	if code := dev.interrupt(); code != app.ExitOK {
		t.Errorf("dev: exit %d", code)
	}
	for _, n := range devNode.FindAllStringSubmatch(dev.said(), -1) {
		if pid, err := strconv.Atoi(n[2]); err != nil || syscall.Kill(pid, 0) == nil {
			t.Errorf("node %s, process %d, is left behind: %v", n[1], pid, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(".rath", "node.json")); len(left) > 0 {
		t.Error("node.json is left behind")
	}
}

// TestDemoFleetInterrupted interrupts the demo of a fleet, which prints the command
// that continues it, and runs that command.
func TestDemoFleetInterrupted(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	demo := startCommand(t, dir, "demo", "--nodes", "2")
	waitFor(t, func() bool { return strings.Contains(demo.said(), "fan-out") })
	if code := demo.interrupt(); code != app.ExitInterrupted {
		t.Errorf("exit %d, want %d", code, app.ExitInterrupted)
	}
	_, line, ok := strings.Cut(demo.said(), "resume the run with\n  ")
	if !ok {
		t.Fatal("no way to go on")
	}
	words := split(strings.TrimSpace(line))
	resumed := startCommand(t, dir, words[slices.Index(words, "resume"):]...)
	if err := resumed.Wait(); err != nil || !strings.Contains(resumed.said(), "succeeded") {
		t.Errorf("%s: %v", line, err)
	}
}

// TestDevFleetKilled kills the process of a fleet, and its server with it, while a node
// is within a step. The nodes end by themselves, and so do their commands.
func TestDevFleetKilled(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	call := `{"cmd":"while true; do echo x >> beat; sleep 0.05; done"}`
	script := "-- work --\nnot result: run_shell_command\nuser: \"work\"\ncall: run_shell_command " + call + "\n\n-- other --\n\ndone\n"
	must.Do(t, os.WriteFile("m.txtar", []byte(script), 0o644))
	port := natstest.FreePort(t)
	dev := startCommand(t, dir, "dev", "--nodes", "2", "--unsafe", "--script", "m.txtar", "--port", strconv.Itoa(port))
	waitFor(t, func() bool { return strings.Contains(dev.said(), "try  ") })
	must.Do(t, os.Mkdir("w", 0o755))
	command(t, `rath submit agent --id one --tools run_shell_command -C w -m "work"`, dir)
	size := func() (n int64) { // of the command's output in its workspace
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == "beat" {
				if info, err := d.Info(); err == nil {
					n += info.Size()
				}
			}
			return nil // a file that vanished meanwhile does not count
		})
		return n
	}
	waitFor(t, func() bool { return size() > 0 })
	must.Do(t, dev.Process.Kill())
	_ = dev.Wait() // it was killed
	killed := time.Now()
	for _, n := range devNode.FindAllStringSubmatch(dev.said(), -1) {
		pid := must.Get(strconv.Atoi(n[2]))(t)
		waitFor(t, func() bool { return hasEnded(pid) })
	}
	took := time.Since(killed)
	t.Logf("the nodes ended after %v", took)
	if took > 4*supervise.OrphanStop {
		t.Errorf("the nodes ended after %v, want about %v", took, supervise.OrphanStop)
	}
	waitFor(t, func() bool {
		was := size()
		time.Sleep(300 * time.Millisecond)
		return size() == was
	})
}

// hasEnded reports whether a process that is no child of this one has ended: it may
// still be a zombie.
func hasEnded(pid int) bool {
	if err := syscall.Kill(pid, 0); err != nil {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, state, found := strings.Cut(string(stat), ") ")
	return err == nil && found && strings.HasPrefix(state, "Z")
}
