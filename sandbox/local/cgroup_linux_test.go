package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/proc"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// existing returns those groups that exist.
func existing(g *groups) (there []string) {
	for _, dir := range g.dirs {
		if _, err := os.Stat(dir); err == nil {
			there = append(there, dir)
		}
	}
	return there
}

// TestSpared: the memory killer spares a supervisor where this process may configure it,
// and a command cannot configure that for itself.
func TestSpared(t *testing.T) {
	s := must.Get(newDriver(&Options{State: t.TempDir()}).Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationKernel}))(t)
	defer s.Close()
	s.(*box).groups.memory = "memory.events" // as with a limit of memory by version 2
	e := must.Get(s.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "echo -1000 >/proc/self/oom_score_adj"}}))(t)
	if e.Code == 0 {
		t.Error("a command excludes itself")
	}
	const least = "-1000"
	score := func(pid int) string {
		text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid)))(t)
		return strings.TrimSpace(string(text))
	}
	other := exec.Command("sleep", "60")
	must.Do(t, other.Start())
	want := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", other.Process.Pid), []byte(least), 0) == nil
	other.Process.Kill()
	other.Wait() // it was killed
	entries := must.Get(os.ReadDir("/proc"))(t)
	spared := 0
	for _, e := range entries {
		pid, _ := strconv.Atoi(e.Name())
		if p, ok := proc.Read(pid); ok && p.PPID == os.Getpid() && score(pid) == least {
			spared++
		}
	}
	if want != (spared == 1) {
		t.Errorf("%d supervisors are spared; this process may spare one: %t", spared, want)
	}
}

// TestGroups checks the control groups of a sandbox while it is open, after Close, and
// after Reap for a killed host. If this process may not create groups, there are none to
// check.
func TestGroups(t *testing.T) {
	b := newDriver(&Options{State: t.TempDir()})
	caps, err := b.Probe(t.Context())
	must.Do(t, err)
	limits := sandbox.Limits{PIDs: 100}
	if all := (sandbox.Limits{Memory: 64 << 20, CPU: 1, PIDs: 100}); len(caps.Unenforced(all)) == 0 {
		limits = all
	}
	want := 0
	for _, h := range hierarchies() {
		t.Logf("%s does %v", h.dir, h.does)
		if limits.Memory > 0 || slices.Contains(h.does, "pids") {
			want++
		}
		if h.v2 && slices.Contains(h.does, "pids") {
			want++ // the command's group
		}
	}
	s, err := b.Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationProcess, Limits: limits})
	must.Do(t, err)
	g := s.(*box).groups
	plain, err := b.Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationProcess})
	must.Do(t, err)
	if got := existing(plain.(*box).groups); len(got) == 0 && want > 0 {
		t.Error("nothing bounds the processes of a sandbox without limits")
	}
	must.Report(t, plain.Close())
	if e, err := s.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", detached + "echo done"}}); err != nil || e.Ended != sandbox.Exited {
		t.Error(e, err)
	}
	if got := existing(g); len(got) != want {
		t.Errorf("the open sandbox has the groups %v", got)
	}
	must.Report(t, s.Close())
	if got := existing(g); len(got) > 0 {
		t.Errorf("the closed sandbox left %v", got)
	}

	dir, host := startHost(t, "")
	state := filepath.Join(dir, "state")
	left, err := leftGroups(onlyFolder(t, state))
	if err != nil || len(existing(left)) == 0 && len(left.dirs) > 0 {
		t.Errorf("the host's sandbox has the groups %v, %v", left.dirs, err)
	}
	must.Do(t, host.Process.Kill())
	_ = host.Wait() // killed
	if leases, err := Reap(t.Context(), state); err != nil || len(leases) != 1 {
		t.Errorf("%d leases were reaped, %v", len(leases), err)
	}
	if got := existing(left); len(got) > 0 {
		t.Errorf("Reap left %v", got)
	}
}

// TestGroupsCannotBeMade: requested limits are rejected then, and without any limit the
// watch must suffice.
func TestGroupsCannotBeMade(t *testing.T) {
	hs := []hierarchy{{dir: filepath.Join(t.TempDir(), "gone"), does: []string{"pids"}}}
	if g, err := openGroups(t.TempDir(), hs, sandbox.Limits{}); err != nil || len(g.dirs) > 0 {
		t.Errorf("without limits: %+v, %v", g, err)
	}
	if _, err := openGroups(t.TempDir(), hs, sandbox.Limits{PIDs: 10}); err == nil {
		t.Error("a limit that cannot be enforced is taken")
	}
}

// TestFull has a command use all processes that its sandbox may have, where control groups
// count them. Another process is rejected with the reason: only commands count, and their
// supervisors have the threads that they need.
func TestFull(t *testing.T) {
	if !countsProcesses() {
		t.Log("no control groups can be made here: what starts too many processes is killed")
		return
	}
	dir := t.TempDir()
	s := must.Get(newDriver(&Options{State: t.TempDir()}).Open(t.Context(), sandbox.Spec{Dir: dir, MinIsolation: sandbox.IsolationProcess, Limits: sandbox.Limits{PIDs: 50}}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Exec(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "i=1; while [ $i -lt 50 ]; do sleep 600 & i=$((i+1)); done; : > full; wait"}})
		ended <- err
	}()
	for {
		if _, err := os.Stat(filepath.Join(dir, "full")); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the command that takes them has ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	for range 5 {
		if e, err := s.Exec(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); err != nil || e.Ended != sandbox.Refused {
			t.Errorf("another command: %v, ended %q with %d: %s", err, e.Ended, e.Code, e.Stderr.Bytes())
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the command that took them: %v", err)
	}
	if e, err := s.Exec(t.Context(), sandbox.Cmd{Argv: []string{"true"}}); err != nil || e.Ended != sandbox.Exited {
		t.Errorf("after it: %v, ended %q", err, e.Ended)
	}
	must.Report(t, s.Close())
}

// countsProcesses reports whether this process may create groups that count processes.
func countsProcesses() bool {
	return slices.ContainsFunc(hierarchies(), func(h hierarchy) bool { return slices.Contains(h.does, "pids") })
}

// TestBomb has each process of a command start two more, where control groups bound them.
// The command is killed, or ends if it cannot continue, and the next command works.
func TestBomb(t *testing.T) {
	if !countsProcesses() {
		t.Log("no control groups can be made here: a bomb is counted by a watch, which takes its time")
		return
	}
	for _, limits := range []sandbox.Limits{{}, {PIDs: 300}} {
		s, err := newDriver(&Options{State: t.TempDir()}).Open(t.Context(), sandbox.Spec{Dir: t.TempDir(), MinIsolation: sandbox.IsolationProcess, Limits: limits})
		must.Do(t, err)
		e, err := s.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", "f() { f | f & }; f; sleep 1"}, Timeout: time.Minute})
		if err != nil && !errors.Is(err, sandbox.ErrLost) || e.Elapsed > 30*time.Second {
			t.Errorf("%+v: %v, ended %q after %v", limits, err, e.Ended, e.Elapsed)
		}
		if e, err := s.Exec(t.Context(), sandbox.Cmd{Argv: []string{"echo", "next"}}); err != nil || string(e.Stdout.Bytes()) != "next\n" {
			t.Errorf("%+v: after it: %v, ended %q: %s", limits, err, e.Ended, e.Stderr.Bytes())
		}
		must.Report(t, s.Close())
	}
}
