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
	"time"

	"github.com/rathcluster/rath/internal/sandbox/proc"
	"github.com/rathcluster/rath/sandbox"
)

// The files of a sandbox's folder below Options.State.
const (
	leaseFile = "lease.json"
	runsFile  = "runs" // "<pid> <start>\n" for each supervisor that was started
	tmpDir    = "tmp"
)

// record creates the sandbox's folder with its lease.
func (b *box) record(s sandbox.Spec) error {
	if err := checkState(b.o.State); err != nil {
		return err
	}
	own, err := os.MkdirTemp(b.o.State, proc.Folder(os.Getpid()))
	if err != nil {
		return err
	}
	// Landlock and HOME require the path without links.
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
	data, err := json.Marshal(proc.NewLease(b.dir, s.Owner, s.Epoch))
	if err != nil {
		return err
	}
	tmp := filepath.Join(own, leaseFile+".new")
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(own, leaseFile))
}

// checkState creates the state directory. It rejects a directory that another user could
// have prepared, because the default one lies in a shared directory.
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

// young is the age below which a folder without a lease may still be under construction, if
// its name does not identify the maker.
const young = time.Minute

// Reap kills the processes and removes the records of sandboxes whose process has ended,
// below a state directory (Options.State; "" is the default one), and returns the
// directories they worked in, which the caller keeps.
//
// Reap kills only processes that provably belong to the sandbox: it compares pids with
// their start times. It may be called at any time, repeatedly, and by several processes
// concurrently.
func Reap(ctx context.Context, state string) (dirs []string, err error) {
	reaped, err := reap(ctx, state, gone)
	for _, l := range reaped {
		dirs = append(dirs, l.Dir)
	}
	return dirs, err
}

// gone reports whether the process of a lease no longer lives, on this boot.
func gone(l proc.Lease) bool { return !l.Alive() }

// reap is Reap for the leases for which stale returns true. If the process of such a lease
// lives, its commands are killed and end there with sandbox.ErrLost.
func reap(ctx context.Context, state string, stale func(proc.Lease) bool) ([]proc.Lease, error) {
	if state == "" {
		state = newDriver(nil).o.State
	}
	folders, err := filepath.Glob(filepath.Join(state, "box-*"))
	if err != nil {
		return nil, fmt.Errorf("local: reap: %w", err)
	}
	var reaped []proc.Lease
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
		if !known || l != (proc.Lease{}) && !stale(l) {
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
		if l != (proc.Lease{}) {
			reaped = append(reaped, l)
		}
	}
	return reaped, errors.Join(errs...)
}

// readLease reads the lease of a folder. It returns a zero Lease for a folder whose maker
// died before writing one. known is false for a folder that was removed or may still be
// under construction.
func readLease(own string) (l proc.Lease, known bool, err error) {
	data, err := os.ReadFile(filepath.Join(own, leaseFile))
	if errors.Is(err, fs.ErrNotExist) {
		fi, err := os.Lstat(own)
		if errors.Is(err, fs.ErrNotExist) {
			return proc.Lease{}, false, nil
		}
		m, ok := proc.Maker(filepath.Base(own))
		return proc.Lease{}, err == nil && (ok && !m.Alive() || time.Since(fi.ModTime()) > young), err
	}
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	return l, true, err
}

// recorded is a process recorded in a sandbox's folder.
type recorded struct {
	pid     int
	started uint64
}

// readRuns reads the list of supervisors and commands, in the order in which they were
// recorded: each command after its supervisor.
func readRuns(name string) ([]recorded, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var runs []recorded
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r recorded
		// A line that a crash truncated names no process.
		if n, _ := fmt.Sscan(lines.Text(), &r.pid, &r.started); n == 2 {
			runs = append(runs, r)
		}
	}
	return runs, lines.Err()
}
