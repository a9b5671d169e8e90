package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Lease is the record of an open sandbox, kept in a file. After a crash the next process
// finds there the processes to end and the directory that is left.
type Lease struct {
	Dir     string    `json:"dir"`   // Spec.Dir, absolute and without links
	Owner   string    `json:"owner"` // Spec.Owner
	Epoch   uint64    `json:"epoch"` // Spec.Epoch
	Opened  time.Time `json:"opened"`
	PID     int       `json:"pid"`     // the process that opened it
	Started uint64    `json:"started"` // its start time in the system's ticks, to detect reused pids
	Boot    string    `json:"boot"`    // the boot that both numbers belong to
}

// NewLease returns a lease of this process.
func NewLease(dir, owner string, epoch uint64) Lease {
	l := Lease{Dir: dir, Owner: owner, Epoch: epoch, Opened: time.Now().UTC(), PID: os.Getpid(), Boot: boot()}
	l.Started, _ = Started(l.PID)
	return l
}

// Folder returns the beginning of the name of a folder for a sandbox of a process, which
// identifies the process, see Maker.
func Folder(pid int) string {
	started, _ := Started(pid)
	return fmt.Sprintf("box-%s-%s-", strconv.FormatInt(int64(pid), 36), strconv.FormatUint(started, 36))
}

// Maker returns the process that made a folder, if the folder's name contains it.
func Maker(name string) (l Lease, ok bool) {
	f := strings.Split(name, "-")
	if len(f) != 4 {
		return Lease{}, false
	}
	pid, err := strconv.ParseInt(f[1], 36, 32)
	if err != nil {
		return Lease{}, false
	}
	l = Lease{PID: int(pid), Boot: boot()}
	l.Started, err = strconv.ParseUint(f[2], 36, 64)
	return l, err == nil
}

// Alive reports whether the process that opened the sandbox still lives.
func (l Lease) Alive() bool {
	if l.Boot != boot() {
		return false
	}
	started, ok := Started(l.PID)
	return ok && started == l.Started
}
