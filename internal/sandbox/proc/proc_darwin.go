package proc

import "golang.org/x/sys/unix"

// Started returns when a process started, in microseconds since the epoch.
func Started(pid int) (uint64, bool) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || p.Proc.P_pid != int32(pid) {
		return 0, false
	}
	at := p.Proc.P_starttime
	return uint64(at.Sec)*1_000_000 + uint64(at.Usec), true
}

// boot is not needed: start times are wall clock times.
func boot() string { return "" }
