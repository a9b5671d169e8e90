package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/confinement"
	"github.com/rathcluster/rath/internal/sandbox/proc"
)

// killLeft kills every process of the sandbox with this folder: the recorded supervisors,
// their descendants and the processes of their sessions, and processes with the sandbox's
// TMPDIR in their environment. The latter also finds processes that left their session
// after their supervisor was killed.
func killLeft(ctx context.Context, own string) error {
	runs, err := readRuns(filepath.Join(own, runsFile))
	if err != nil {
		return err
	}
	// Kill each supervisor before its commands, so that none reports a command that was
	// killed here.
	for _, r := range runs {
		proc.Kill(proc.Process{PID: r.pid, Started: r.started})
	}
	g, err := leftGroups(own)
	if err == nil {
		err = g.kill(ctx)
	}
	if err != nil {
		return err
	}
	mark := []byte("\x00TMPDIR=" + filepath.Join(own, tmpDir) + "\x00")
	deadline := time.Now().Add(confinement.Patience)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		left := leftOver(runs, mark)
		if len(left) == 0 {
			return nil
		}
		proc.KillAll(left)
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes, the first with pid %d, do not die", len(left), left[0].PID)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func leftOver(runs []recorded, mark []byte) []proc.Process {
	supervisors := make(map[int]uint64, len(runs))
	for _, r := range runs {
		supervisors[r.pid] = r.started
	}
	self := os.Getpid()
	all := proc.All()
	byPID := make(map[int]proc.Process, len(all))
	for _, p := range all {
		byPID[p.PID] = p
	}
	// A session's number is not reused while a process is in the session. If its leader
	// lives with another start time, the number was reused.
	session := func(p proc.Process) bool {
		start, ok := supervisors[p.SID]
		if !ok || p.Started < start {
			return false
		}
		leader, alive := byPID[p.SID]
		return !alive || leader.Started == start
	}
	var left []proc.Process
	for _, p := range all {
		if p.Zombie || p.PID == self {
			continue
		}
		start, isSupervisor := supervisors[p.PID]
		if isSupervisor && start == p.Started {
			left = append(left, p)
			left = append(left, proc.Descendants(p.PID)...)
			continue
		}
		if session(p) || hasEnv(p.PID, mark) {
			left = append(left, p)
		}
	}
	return left
}

// hasEnv reports whether a process was started with a variable. mark is the variable
// between two NULs.
func hasEnv(pid int, mark []byte) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	return bytes.Contains(append([]byte{0}, data...), mark)
}
