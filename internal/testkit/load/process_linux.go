package load

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of /proc/<pid>/stat: every architecture that Go runs on has
// 100 of them in a second.
const tick = 10 * time.Millisecond

// CPUTime is the processor time that a process has used so far, in steps of
// 10 ms.
func CPUTime(pid int) (time.Duration, error) {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	data, err := os.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("load: processor time of process %d: %w", pid, err)
	}
	// The second field is the program's name in parentheses, which may hold
	// anything; user and system time are the 14th and 15th.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("load: processor time of process %d: %s has %d fields", pid, name, len(fields))
	}
	var sum time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("load: processor time of process %d: %s: %w", pid, name, err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}
