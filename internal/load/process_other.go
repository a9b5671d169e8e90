//go:build !linux

package load

import "time"

// CPUTime is the processor time that a process has used so far; this system
// does not tell it.
func CPUTime(int) (time.Duration, error) { return 0, errNoCPU }
