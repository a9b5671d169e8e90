package main

import (
	"runtime"
	"strings"
	"testing"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
)

// TestQuarantine puts a session into quarantine on a node that works: a task that is
// submitted to it waits, and runs once it is released, while a follower watches.
func TestQuarantine(t *testing.T) {
	if isPlayed(t) {
		return
	}
	if runtime.GOOS == "windows" {
		t.Log("a process cannot be interrupted from outside here")
		return
	}
	dir := t.TempDir()
	dev, _ := startDev(t, dir)
	rath := func(line, want string) {
		t.Helper()
		if got := command(t, "rath "+line, dir); !strings.Contains(got, want) {
			t.Errorf("$ rath %s\n%swant %q", line, got, want)
		}
	}
	watch := startCommand(t, dir, "ps", "--watch")

	rath("run -m one --session chat --id first -q", "echo: one")
	waitFor(t, func() bool { return strings.Contains(watch.said(), "first") })
	rath("cluster quarantine first --reason odd --by ana", "run first is quarantined")
	rath("submit agent -m two --session chat --id second -q", "second")
	held := func() bool {
		return strings.Contains(command(t, "rath ps --where 'quarantined=yes and state=queued' --no-headers -q", dir), "second")
	}
	waitFor(t, held)
	rath("ps --where run=second -q --no-headers", "quarantined: odd")
	waitFor(t, func() bool { return strings.Contains(watch.said(), "quarantined: odd") })
	rath("cluster release --where quarantined=yes --reason fine", "is released")
	waitFor(t, func() bool {
		return strings.Contains(command(t, "rath ps --where 'run=second and state=succeeded' --no-headers -q", dir), "second")
	})
	rath("session rerun second", "runs again as second-r1")
	waitFor(t, func() bool {
		return strings.Contains(command(t, "rath ps --where 'run=second-r1 and state=succeeded' --no-headers -q", dir), "second-r1")
	})
	rath("show second-r1", "echo: two")
	rath("show first --tree", "operator    (says to be ana) quarantines the session: odd")

	waitFor(t, func() bool { return strings.Contains(watch.said(), "second-r1") })
	if code := watch.interrupt(); code != app.ExitInterrupted {
		t.Errorf("ps --watch ends with %d, want %d", code, app.ExitInterrupted)
	}
	if code := dev.interrupt(); code != app.ExitOK {
		t.Errorf("dev: exit %d", code)
	}
}
