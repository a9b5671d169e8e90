//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestFollowTellsOfPeople follows a run on a node whose branch asks a person, and which
// then stops for a person: a follower prints once how to continue the run, even if it
// starts later, and follows to the end.
func TestFollowTellsOfPeople(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	var node offering
	defer node.offer(t, dir, "nothing")
	node.offer(t, dir, "1")
	branch := func(state run.State) string {
		t.Helper()
		c, err := node.node.Client(t.Context())
		must.Do(t, err)
		defer c.Close()
		var all []messages.RunInfo
		waitFor(t, func() bool {
			all, err = c.Runs.List(t.Context(), &client.RunsOptions{States: []run.State{state}, Where: "branch=yes"})
			return err == nil && len(all) == 1
		})
		return string(all[0].Run)
	}
	early := startCommand(t, dir, "submit", "releases", "--id", "one", "--wait")
	id := branch(run.Waiting)
	late := startCommand(t, dir, "run", "releases", "--id", "one", "-q")
	for _, follower := range []*child{early, late} {
		waitFor(t, func() bool { return strings.Contains(follower.said(), " answer "+id+" yes") })
	}
	command(t, "rath answer "+id+" yes --by ann", dir)
	for _, follower := range []*child{early, late} {
		must.Report(t, follower.Wait())
		if n := strings.Count(follower.said(), "answer "+id+" yes"); n != 1 {
			t.Errorf("the question was told %d times", n)
		}
	}
	if !strings.Contains(early.said(), "succeeded") {
		t.Error("nothing is said of the end")
	}

	// The branch stops, because the code differs.
	command(t, "rath submit releases --id two", dir)
	id = branch(run.Waiting)
	node.offer(t, dir, "2")
	command(t, "rath answer "+id+" yes --by ann", dir)
	node.await(t, run.ID(id), run.NeedsReview)
	follower := startCommand(t, dir, "run", "releases", "--id", "two")
	waitFor(t, func() bool { return strings.Contains(follower.said(), " answer "+id+" fail") })
	command(t, "rath answer "+id+" fail --reason 'it is another release'", dir)
	_ = follower.Wait() // the exit code is checked below
	if code := follower.ProcessState.ExitCode(); code != app.ExitFailed {
		t.Errorf("exit code %d", code)
	}
	if n := strings.Count(follower.said(), "needs review"); n != 1 {
		t.Errorf("that a person has to decide was told %d times", n)
	}
}

// TestFollowTellsOfLostServer follows at a node that is killed and restarted: the
// follower prints both, and continues.
func TestFollowTellsOfLostServer(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	dev, url := startDev(t, dir)
	command(t, "rath submit agent -m first --wait", dir)
	here, remote := startCommand(t, dir, "cluster", "tail", "-f"), startCommand(t, dir, "cluster", "tail", "-f", "--server", url)
	both := func(text string) {
		t.Helper()
		for _, c := range []*child{here, remote} {
			waitFor(t, func() bool { return strings.Contains(c.said(), text) })
		}
	}
	both("echo: first")
	at := must.Get(supervise.ReadAttachment(filepath.Join(dir, ".rath")))(t)
	login := "//" + at.OperatorUser + ":" + at.OperatorPassword + "@"
	told := command(t, "rath doctor --server "+strings.Replace(url, "//", login, 1), dir)
	if strings.Contains(told, at.OperatorPassword) || !strings.Contains(told, "ok   system") {
		t.Errorf("doctor tells\n%s\nwant the system without the password", told)
	}
	must.Do(t, dev.Process.Kill())
	_ = dev.Wait() // it was killed
	both("is lost and is being made again")
	_, port, _ := strings.Cut(strings.TrimPrefix(url, "nats://"), ":")
	again := startCommand(t, dir, "dev", "--port", port)
	both("is back")
	command(t, "rath submit agent -m second --wait", dir)
	both("echo: second")
	for _, c := range []*child{here, remote} {
		if code := c.interrupt(); code != app.ExitInterrupted {
			t.Errorf("exit code %d", code)
		}
		if n := strings.Count(c.said(), "is lost"); n != 1 {
			t.Errorf("that the connection is lost was told %d times", n)
		}
	}
	if code := again.interrupt(); code != app.ExitOK {
		t.Errorf("dev ends with %d", code)
	}
}

// TestFollowEndsWithItsNode follows at a node that is stopped and then restarted at
// another address: the follower prints that it was stopped, and the node's new address.
// A follower that holds the store itself has no more messages to wait for.
func TestFollowEndsWithItsNode(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	script := "A model that is slow at its second answer.\n\n-- work --\nnot result: list_workspace_files\ncall: list_workspace_files {}\n\n-- answer --\ndelay: 60s\n\ndone\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "slow.txtar"), []byte(script), 0o644))
	t.Chdir(dir)
	dev := startCommand(t, dir, "dev", "--port", strconv.Itoa(natstest.FreePort(t)), "--script", "slow.txtar")
	waitFor(t, func() bool { return strings.Contains(dev.said(), "try  ") })
	command(t, `rath submit agent -m '{"prompt":"first","approve":["*"]}' --tools list_workspace_files --id one`, dir)
	followers := map[string]*child{"tail -f --after ": startCommand(t, dir, "cluster", "tail", "-f"), "show one --steps -f": startCommand(t, dir, "show", "one", "--steps", "-f")}
	for _, f := range followers {
		waitFor(t, func() bool { return strings.Contains(f.said(), "waits for approval") })
	}
	if code := dev.interrupt(); code != app.ExitOK {
		t.Fatalf("dev ends with %d", code)
	}
	for _, f := range followers {
		waitFor(t, func() bool {
			return strings.Contains(f.said(), "is lost: it was stopped; this command continues when ")
		})
	}
	dev = startCommand(t, dir, "dev", "--port", strconv.Itoa(natstest.FreePort(t)), "--script", "slow.txtar")
	for next, f := range followers {
		_ = f.Wait() // the exit code is checked below
		if code := f.ProcessState.ExitCode(); code != app.ExitUnavailable {
			t.Errorf("exit code %d", code)
		}
		if _, text, _ := strings.Cut(f.said(), "has restarted at nats://"); !strings.Contains(text, next) {
			t.Errorf("it does not say how to go on: %q", text)
		}
	}
	waitFor(t, func() bool { return strings.Contains(dev.said(), "try  ") })

	// It is killed in the middle of a call.
	command(t, "rath answer one yes --by ann", dir)
	waitFor(t, func() bool { return strings.Contains(command(t, "rath cluster tail one --kind tool", dir), "list") })
	must.Do(t, dev.Process.Kill())
	_ = dev.Wait() // it was killed
	for args, want := range map[string]string{
		"rath cluster tail -f one": "no node runs here, so there are no new records: start \"",
		"rath show one --steps -f": "run one is open, and no node runs here: it continues with \"",
	} {
		if got := command(t, args, dir); !strings.Contains(got, want) || !strings.Contains(got, "[exit 5]") {
			t.Errorf("%s says\n%s\nwant %q and exit 5", args, got, want)
		}
	}
}

// TestFollowSteps follows the steps of a run that waits: the chosen existing steps, and
// the later ones, each once and with its number.
func TestFollowSteps(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	var node offering
	defer node.offer(t, dir, "nothing")
	node.offer(t, dir, "1")
	command(t, "rath submit release --id one", dir)
	node.await(t, "one", run.Waiting)
	all := startCommand(t, dir, "show", "one", "--last", "1", "-f", "-q")
	failed := startCommand(t, dir, "show", "one", "--errors", "-f", "-q", "--format", "jsonl")
	waitFor(t, func() bool { return strings.Contains(all.said(), "did notes") })
	command(t, "rath answer one yes --by ann", dir)
	for _, follower := range []*child{all, failed} {
		must.Report(t, follower.Wait())
	}
	n := 0
	for line := range strings.Lines(all.said()) {
		n++
		if number, _, _ := strings.Cut(strings.TrimSpace(line), " "); number != strconv.Itoa(n) {
			t.Errorf("line %d has the number %s", n, number)
		}
	}
	if want := strings.Count(command(t, "rath show one --steps 1.. -q --no-headers", dir), "\n"); n != want || n < 2 {
		t.Errorf("%d steps were followed, the run has %d", n, want)
	}
	if said := failed.said(); said != "" {
		t.Errorf("no step failed, and these were told: %s", said)
	}

	// It has ended: there are no more steps to wait for.
	for args, want := range map[string]string{"--last 1": "approved", "": "by revision 1, approved"} {
		if got := withoutWait(t, "rath show one -f "+args, dir); !strings.Contains(got, want) || !strings.Contains(got, "succeeded") {
			t.Errorf("show one -f %s says\n%s\nwant %q", args, got, want)
		}
	}
}

// withoutWait plays a command that must not wait for past events, which would take 5 s
// each time. The machine's other work slows down single ones.
func withoutWait(t *testing.T, line, dir string) (got string) {
	t.Helper()
	least := time.Hour
	for i := 0; i < 5 && least > 4*time.Second; i++ {
		began := time.Now()
		got = command(t, line, dir)
		least = min(least, time.Since(began))
	}
	if least > 4*time.Second {
		t.Errorf("%s took %v at least", line, least)
	}
	return got
}

// TestRunAgain: the same task again prints the outcome of its run at once, and another
// task under its id is rejected.
func TestRunAgain(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	t.Chdir(dir)
	const same = "RATH_MODEL=echo rath run --id one -m one"
	command(t, same, dir)
	if got := withoutWait(t, same, dir); !strings.Contains(got, "echo: one") || !strings.Contains(got, "succeeded, 1 model call") {
		t.Errorf("the second time it says\n%s", got)
	}
	if got := command(t, "RATH_MODEL=echo rath run --id one -m two", dir); !strings.Contains(got, "another task") {
		t.Errorf("another task under the id says\n%s", got)
	}
}

// TestFollowTellsOfQuarantine: commands whose task waits for a quarantined session
// print that once, and how to continue it.
func TestFollowTellsOfQuarantine(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	dev, _ := startDev(t, dir)
	command(t, "rath submit agent --session apart -m first --wait", dir)
	command(t, "rath cluster quarantine apart --reason bad", dir)
	all := []*child{
		startCommand(t, dir, "run", "--session", "apart", "--id", "one", "-m", "second"),
		startCommand(t, dir, "submit", "agent", "--session", "apart", "--id", "two", "-m", "third", "--wait"),
	}
	const told = `accepted and waits: its session is quarantined (bad) until "`
	for _, c := range all {
		waitFor(t, func() bool { return strings.Contains(c.said(), told) })
	}
	command(t, "rath cluster release apart --reason good", dir)
	for _, c := range all {
		if err := c.Wait(); err != nil || strings.Count(c.said(), told) != 1 || !strings.Contains(c.said(), "succeeded") {
			t.Errorf("%v, and it says\n%s", err, c.said())
		}
	}
	if code := dev.interrupt(); code != app.ExitOK {
		t.Errorf("dev ends with %d", code)
	}
}
