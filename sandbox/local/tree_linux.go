package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// proc is one process as /proc shows it.
type proc struct {
	pid, ppid, pgid, sid int
	threads              int
	start                uint64 // clock ticks since boot
	zombie               bool
}

// readProc reads /proc/<pid>/stat; ok is false if there is no such process.
func readProc(pid int) (p proc, ok bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	// The name in parentheses may hold anything, also parentheses.
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return proc{}, false
	}
	f := bytes.Fields(data[i+1:])
	if len(f) < 20 {
		return proc{}, false
	}
	num := func(i int) int { n, _ := strconv.Atoi(string(f[i])); return n }
	start, err := strconv.ParseUint(string(f[19]), 10, 64)
	if err != nil {
		return proc{}, false
	}
	state := f[0][0]
	return proc{pid: pid, ppid: num(1), pgid: num(2), sid: num(3), threads: num(17), start: start, zombie: state == 'Z' || state == 'X'}, true
}

// startTime returns when a process started, in clock ticks since boot.
func startTime(pid int) (uint64, bool) {
	p, ok := readProc(pid)
	return p.start, ok && !p.zombie
}

// bootID tells one boot from another; start times and pids begin again with each.
var bootID = sync.OnceValue(func() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
})

// allProcs lists the processes this process can see.
func allProcs() []proc {
	f, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var list []proc
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if p, ok := readProc(pid); ok {
			list = append(list, p)
		}
	}
	return list
}

// descendants lists the living children of a process, their children and so on.
func descendants(pid int) []proc {
	return slices.DeleteFunc(family(pid), func(p proc) bool { return p.zombie })
}

// tasks counts the processes and threads below a process. One that ended
// counts until its parent has waited for it, because it still has a number.
func tasks(pid int) int {
	n := 0
	for _, p := range family(pid) {
		n += max(1, p.threads)
	}
	return n
}

// family lists everything that descends from a process.
func family(pid int) []proc {
	children := make(map[int][]proc)
	for _, p := range allProcs() {
		children[p.ppid] = append(children[p.ppid], p)
	}
	var list []proc
	todo := []int{pid}
	for len(todo) > 0 {
		next := children[todo[0]]
		delete(children, todo[0])
		todo = todo[1:]
		for _, p := range next {
			todo = append(todo, p.pid)
			list = append(list, p)
		}
	}
	return list
}

// killAll sends SIGKILL to the processes and, first, to their groups: a group
// is killed at once, also while its members fork.
func killAll(list []proc) {
	self := unix.Getpgrp()
	groups := make(map[int]bool)
	for _, p := range list {
		if p.pgid > 1 && p.pgid != self && !groups[p.pgid] && ownGroup(p, list) {
			groups[p.pgid] = true
			unix.Kill(-p.pgid, unix.SIGKILL)
		}
	}
	for _, p := range list {
		killProc(p)
	}
}

// ownGroup reports whether the process still is in the group it was seen in;
// while it is, the number of the group cannot belong to anybody else.
func ownGroup(p proc, _ []proc) bool {
	now, ok := readProc(p.pid)
	return ok && now.start == p.start && now.pgid == p.pgid && now.sid == p.sid
}

// killProc kills exactly the process that was seen: the handle is taken
// first and then the start time compared, so the pid cannot change hands in
// between.
func killProc(p proc) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	if start, ok := startTime(p.pid); ok && start == p.start {
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
		killProc(proc{pid: pid, start: start})
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
			return fmt.Errorf("%d processes, the first with pid %d, do not die", len(left), left[0].pid)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func leftOver(supervisors map[int]uint64, mark []byte) []proc {
	self := os.Getpid()
	all := allProcs()
	byPID := make(map[int]proc, len(all))
	for _, p := range all {
		byPID[p.pid] = p
	}
	// A session's number stays taken while a process is in the session. If its
	// leader lives with another start time, the number was given to another process.
	session := func(p proc) bool {
		start, ok := supervisors[p.sid]
		if !ok || p.start < start {
			return false
		}
		leader, alive := byPID[p.sid]
		return !alive || leader.start == start
	}
	var left []proc
	for _, p := range all {
		if p.zombie || p.pid == self {
			continue
		}
		start, isSupervisor := supervisors[p.pid]
		if isSupervisor && start == p.start {
			left = append(left, p)
			left = append(left, descendants(p.pid)...)
			continue
		}
		if session(p) || hasEnv(p.pid, mark) {
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
