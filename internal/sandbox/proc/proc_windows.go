package proc

import "golang.org/x/sys/windows"

// Started returns when a process started, in units of 100 ns.
func Started(pid int) (uint64, bool) {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return 0, false
	}
	defer windows.CloseHandle(h)
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &created, &exited, &kernel, &user); err != nil {
		return 0, false
	}
	return uint64(created.Nanoseconds()) / 100, exited == windows.Filetime{}
}

// boot is not needed: start times are wall clock times.
func boot() string { return "" }
