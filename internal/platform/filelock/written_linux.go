package filelock

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// writersPatience is far above the time that the start of a process takes.
const writersPatience = 2 * time.Second

// CloseWritten closes a file that was written, and waits until it can be run, at most two
// seconds. A process that this one starts has all open files of this one until it runs its
// own program, and a file that is open for writing cannot be run ("Text file busy"). The
// file is free once the kernel grants a lease for reading, which it does not while anybody
// can write (fcntl(2), F_SETLEASE). Where it grants none, on a file system without leases
// and to a process without CAP_LEASE for the file of another user, the wait ends at once.
func CloseWritten(f *os.File) error {
	r, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return f.Close() // there is no /proc
	}
	defer r.Close()
	if err := f.Close(); err != nil {
		return err
	}
	end := time.Now().Add(writersPatience)
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		_, err := unix.FcntlInt(r.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
		if err == nil {
			_, _ = unix.FcntlInt(r.Fd(), unix.F_SETLEASE, unix.F_UNLCK) // it would end with r
		}
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(end) {
			return nil
		}
		time.Sleep(pause)
	}
}
