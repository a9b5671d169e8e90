package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/proc"
)

// allProcs lists the processes this process can see.
func allProcs() []proc.Process {
	f, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var list []proc.Process
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if p, ok := proc.Read(pid); ok {
			list = append(list, p)
		}
	}
	return list
}

// descendants lists the living children of a process, their children and so on.
func descendants(pid int) []proc.Process {
	return slices.DeleteFunc(family(pid), func(p proc.Process) bool { return p.Zombie })
}

// tasks counts the processes and threads below a process. One that ended
// counts until its parent has waited for it, because it still has a number.
func tasks(pid int) int {
	n := 0
	for _, p := range family(pid) {
		n += max(1, p.Threads)
	}
	return n
}

// family lists everything that descends from a process.
func family(pid int) []proc.Process {
	children := make(map[int][]proc.Process)
	for _, p := range allProcs() {
		children[p.PPID] = append(children[p.PPID], p)
	}
	var list []proc.Process
	todo := []int{pid}
	for len(todo) > 0 {
		next := children[todo[0]]
		delete(children, todo[0])
		todo = todo[1:]
		for _, p := range next {
			todo = append(todo, p.PID)
			list = append(list, p)
		}
	}
	return list
}

// killAll sends SIGKILL to the processes and, first, to their groups: a group
// is killed at once, also while its members fork.
func killAll(list []proc.Process) {
	self := unix.Getpgrp()
	groups := make(map[int]bool)
	for _, p := range list {
		if p.PGID > 1 && p.PGID != self && !groups[p.PGID] && ownGroup(p, list) {
			groups[p.PGID] = true
			unix.Kill(-p.PGID, unix.SIGKILL)
		}
	}
	for _, p := range list {
		killProc(p)
	}
}

// ownGroup reports whether the process still is in the group it was seen in;
// while it is, the number of the group cannot belong to anybody else.
func ownGroup(p proc.Process, _ []proc.Process) bool {
	now, ok := proc.Read(p.PID)
	return ok && now.Started == p.Started && now.PGID == p.PGID && now.SID == p.SID
}

// killProc kills exactly the process that was seen: the handle is taken
// first and then the start time compared, so the pid cannot change hands in
// between.
func killProc(p proc.Process) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	if start, ok := proc.Started(p.PID); ok && start == p.Started {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// killLeft kills every process that belongs to the sandbox with this folder:
// supervisors that are recorded there, what descends from them or is in their
// sessions, and what carries the sandbox's TMPDIR in its environment, which
// also finds what left its session after its supervisor was killed.
func killLeft(ctx context.Context, own string) error {
	supervisors, err := readRuns(filepath.Join(own, runsFile))
	if err != nil {
		return err
	}
	// The supervisors first, so that none tells of a command that was killed here.
	for pid, start := range supervisors {
		killProc(proc.Process{PID: pid, Started: start})
	}
	g, err := leftGroups(own)
	if err == nil {
		err = g.kill(ctx)
	}
	if err != nil {
		return err
	}
	mark := []byte("\x00TMPDIR=" + filepath.Join(own, tmpDir) + "\x00")
	deadline := time.Now().Add(killPatience)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		left := leftOver(supervisors, mark)
		if len(left) == 0 {
			return nil
		}
		killAll(left)
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

func leftOver(supervisors map[int]uint64, mark []byte) []proc.Process {
	self := os.Getpid()
	all := allProcs()
	byPID := make(map[int]proc.Process, len(all))
	for _, p := range all {
		byPID[p.PID] = p
	}
	// A session's number stays taken while a process is in the session. If its
	// leader lives with another start time, the number was given to another process.
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
			left = append(left, descendants(p.PID)...)
			continue
		}
		if session(p) || hasEnv(p.PID, mark) {
			left = append(left, p)
		}
	}
	return left
}

// hasEnv reports whether a process was started with a variable, given with a
// NUL on both sides.
func hasEnv(pid int, mark []byte) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	return bytes.Contains(append([]byte{0}, data...), mark)
}
