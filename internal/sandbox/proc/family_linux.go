package proc

import (
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// All lists the processes that are visible to this process.
func All() []Process {
	f, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var list []Process
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if p, ok := Read(pid); ok {
			list = append(list, p)
		}
	}
	return list
}

// Descendants lists the living children of a process, their children and so on.
func Descendants(pid int) []Process {
	return slices.DeleteFunc(Family(pid), func(p Process) bool { return p.Zombie })
}

// Tasks counts the processes and threads below a process. A process that ended counts until
// its parent has waited for it, because it still has a number.
func Tasks(pid int) int {
	n := 0
	for _, p := range Family(pid) {
		n += max(1, p.Threads)
	}
	return n
}

// Family lists the descendants of a process.
func Family(pid int) []Process {
	children := make(map[int][]Process)
	for _, p := range All() {
		children[p.PPID] = append(children[p.PPID], p)
	}
	var list []Process
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

// KillAll sends SIGKILL to the processes, after their groups: a group is killed at once,
// even while its members fork.
func KillAll(list []Process) {
	self := unix.Getpgrp()
	groups := make(map[int]bool)
	for _, p := range list {
		if p.PGID > 1 && p.PGID != self && !groups[p.PGID] && ownGroup(p) {
			groups[p.PGID] = true
			unix.Kill(-p.PGID, unix.SIGKILL)
		}
	}
	for _, p := range list {
		Kill(p)
	}
}

// ownGroup reports whether the process is still in its recorded group. While it is, the
// group's number cannot be reused.
func ownGroup(p Process) bool {
	now, ok := Read(p.PID)
	return ok && now.Started == p.Started && now.PGID == p.PGID && now.SID == p.SID
}

// Kill kills exactly the given process: it opens a handle first and then compares the start
// time, so the pid cannot be reused in between.
func Kill(p Process) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	if start, ok := Started(p.PID); ok && start == p.Started {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}
