package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/sandbox"
)

// Lease is the record of an open sandbox, kept in a file so that Reap
// knows after a crash which processes to kill and which directory is left.
type Lease struct {
	Dir     string    `json:"dir"`   // Spec.Dir, absolute
	Owner   string    `json:"owner"` // Spec.Owner
	Epoch   uint64    `json:"epoch"` // Spec.Epoch
	Opened  time.Time `json:"opened"`
	PID     int       `json:"pid"`     // the process that opened it
	Started uint64    `json:"started"` // its start time in the system's ticks, against reused pids
	Boot    string    `json:"boot"`    // the boot both numbers belong to
}

// NewLease returns a lease of this process.
func NewLease(dir, owner string, epoch uint64) (Lease, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	l := Lease{Dir: dir, Owner: owner, Epoch: epoch, Opened: time.Now().UTC(), PID: os.Getpid(), Boot: bootID()}
	l.Started, _ = startTime(l.PID)
	return l, err
}

// The files of a sandbox's folder below Options.State.
const (
	leaseFile = "lease.json"
	runsFile  = "runs" // "<pid> <start>\n" for each supervisor that was started
	tmpDir    = "tmp"
)

// FolderOf begins the name of a folder that a process makes for a sandbox, so that it can be
// told whose it is, see Maker.
func FolderOf(pid int) string {
	started, _ := startTime(pid)
	return fmt.Sprintf("box-%s-%s-", strconv.FormatInt(int64(pid), 36), strconv.FormatUint(started, 36))
}

// Maker is the process that made a folder, as far as its name says so.
func Maker(own string) (l Lease, ok bool) {
	f := strings.Split(filepath.Base(own), "-")
	if len(f) != 4 {
		return Lease{}, false
	}
	pid, err := strconv.ParseInt(f[1], 36, 32)
	if err != nil {
		return Lease{}, false
	}
	l = Lease{PID: int(pid), Boot: bootID()}
	l.Started, err = strconv.ParseUint(f[2], 36, 64)
	return l, err == nil
}

// record makes the sandbox's folder with its lease.
func (b *box) record(s sandbox.Spec) error {
	if err := checkState(b.o.State); err != nil {
		return err
	}
	own, err := os.MkdirTemp(b.o.State, FolderOf(os.Getpid()))
	if err != nil {
		return err
	}
	// Landlock and HOME need the name without links.
	if own, err = filepath.EvalSymlinks(own); err != nil {
		return err
	}
	b.own, b.tmp = own, filepath.Join(own, tmpDir)
	if err := os.Mkdir(b.tmp, 0o700); err != nil {
		return err
	}
	if b.o.UID != 0 {
		if err := errors.Join(os.Chmod(own, 0o711), os.Chown(b.tmp, b.o.UID, b.o.GID)); err != nil {
			return err
		}
	}
	if b.runs, err = os.OpenFile(filepath.Join(own, runsFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	l, err := NewLease(b.dir, s.Owner, s.Epoch)
	if err != nil {
		return err
	}
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	tmp := filepath.Join(own, leaseFile+".new")
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(own, leaseFile))
}

// checkState makes the state directory and refuses one that another user could
// have prepared, because the default one lies in a directory that all share.
func checkState(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !fi.IsDir() || !ownedByUs(fi) {
		return fmt.Errorf("the state directory %s is not a directory of this user; remove it or set another State", dir)
	}
	return nil
}

// young is the age below which a folder without a lease may still be in the
// making, if its name does not say by whom.
const young = time.Minute

// Reap kills the processes and removes the records of sandboxes whose owner is
// gone, below a state directory (Options.State; "" is the default one), and
// returns their leases. Their workspace directories are left to the caller.
//
// stale decides what is gone; nil means leases whose process does not live any
// more, on this boot. A function that says true for a lease of a living
// process, say one with a lower epoch, has that sandbox's commands killed under
// it; they end there with sandbox.ErrLost.
//
// Only processes that provably belong to the sandbox are killed: pids are
// compared with their start times. Reap may be called at any time, again, and
// by several processes at once.
func Reap(ctx context.Context, state string, stale func(Lease) bool) ([]Lease, error) {
	if state == "" {
		state = New(nil).o.State
	}
	if stale == nil {
		stale = func(l Lease) bool { return !l.Alive() }
	}
	folders, err := filepath.Glob(filepath.Join(state, "box-*"))
	if err != nil {
		return nil, fmt.Errorf("local: reap: %w", err)
	}
	var reaped []Lease
	var errs []error
	for _, own := range folders {
		if err := ctx.Err(); err != nil {
			return reaped, errors.Join(append(errs, err)...)
		}
		l, known, err := readLease(own)
		if err != nil {
			errs = append(errs, fmt.Errorf("local: reap: %w", err))
			continue
		}
		if !known || l != (Lease{}) && !stale(l) {
			continue
		}
		if own, err = filepath.EvalSymlinks(own); err == nil {
			err = killLeft(ctx, own)
		}
		if err == nil {
			var g *groups
			if g, err = leftGroups(own); err == nil {
				err = g.close(ctx)
			}
		}
		if err == nil {
			err = sandbox.RemoveTree(own)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("local: reap %s: %w", own, err))
			continue
		}
		if l != (Lease{}) {
			reaped = append(reaped, l)
		}
	}
	return reaped, errors.Join(errs...)
}

// readLease reads the lease of a folder. A folder that has none because its
// maker died before writing it gives a zero Lease; known is false for one that
// is gone or may still be in the making.
func readLease(own string) (l Lease, known bool, err error) {
	data, err := os.ReadFile(filepath.Join(own, leaseFile))
	if errors.Is(err, fs.ErrNotExist) {
		fi, err := os.Lstat(own)
		if errors.Is(err, fs.ErrNotExist) {
			return Lease{}, false, nil
		}
		m, ok := Maker(own)
		return Lease{}, err == nil && (ok && !m.Alive() || time.Since(fi.ModTime()) > young), err
	}
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	return l, true, err
}

// Alive reports whether the process that opened the sandbox still lives.
func (l Lease) Alive() bool {
	if l.Boot != bootID() {
		return false
	}
	started, ok := startTime(l.PID)
	return ok && started == l.Started
}

// readRuns reads the list of supervisors: pid to start time.
func readRuns(name string) (map[int]uint64, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	runs := make(map[int]uint64)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var pid int
		var start uint64
		// A line that a crash cut short names no process.
		if n, _ := fmt.Sscan(lines.Text(), &pid, &start); n == 2 {
			runs[pid] = start
		}
	}
	return runs, lines.Err()
}
