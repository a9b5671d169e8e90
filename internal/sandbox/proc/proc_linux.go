package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Process is one process as /proc shows it.
type Process struct {
	PID, PPID, PGID, SID int
	Threads              int
	Started              uint64 // clock ticks since boot
	Zombie               bool
}

// Read reads /proc/<pid>/stat; ok is false if there is no such process.
func Read(pid int) (p Process, ok bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, false
	}
	// The name in parentheses may contain any characters, also parentheses.
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return Process{}, false
	}
	f := bytes.Fields(data[i+1:])
	if len(f) < 20 {
		return Process{}, false
	}
	num := func(i int) int { n, _ := strconv.Atoi(string(f[i])); return n }
	start, err := strconv.ParseUint(string(f[19]), 10, 64)
	if err != nil {
		return Process{}, false
	}
	state := f[0][0]
	return Process{PID: pid, PPID: num(1), PGID: num(2), SID: num(3), Threads: num(17), Started: start, Zombie: state == 'Z' || state == 'X'}, true
}

// Started returns when a process started, in clock ticks since boot.
func Started(pid int) (uint64, bool) {
	p, ok := Read(pid)
	return p.Started, ok && !p.Zombie
}

// boot identifies the boot of the machine; start times and pids restart with each boot.
var boot = sync.OnceValue(func() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
})
