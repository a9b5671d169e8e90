//go:build linux

package fleet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Disk is a disk of its own for the store of a NATS server. Only the fleet
// sees it.
type Disk struct {
	// Size in bytes; 0 is no disk of its own.
	Size int64
	// Power adds a file system whose power can be cut, see CutPower, in a file beside the
	// store. Otherwise the file system is in memory.
	Power bool
}

func (f *Fleet) store(name string) string { return f.dir(name, "store") }
func (f *Fleet) image(name string) string { return f.dir(name, "disk.img") }

// insert gives a process its disk.
func (f *Fleet) insert(name string, d Disk) error {
	if !d.Power {
		return f.thread.do(nil, func() error {
			if err := unix.Mount("none", f.store(name), "tmpfs", 0, fmt.Sprintf("size=%d", d.Size)); err != nil {
				return fmt.Errorf("fleet: disk of %s: %w; run it as root", name, err)
			}
			return nil
		})
	}
	file, err := os.Create(f.image(name))
	if err != nil {
		return fmt.Errorf("fleet: disk of %s: %w", name, err)
	}
	if err := errors.Join(file.Truncate(d.Size), file.Close()); err != nil {
		return fmt.Errorf("fleet: disk of %s: %w", name, err)
	}
	return errors.Join(f.run("mkfs.ext4", "-q", "-F", f.image(name)), f.mount(name))
}

func (f *Fleet) mount(name string) error {
	return f.run("mount", "-o", "loop", f.image(name), f.store(name))
}

// run runs a program where the fleet's mounts are.
func (f *Fleet) run(name string, args ...string) error {
	return f.thread.do(nil, func() error {
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("fleet: %s: %w: %s (it needs root, and the packages e2fsprogs and mount)", name, err, out)
		}
		return nil
	})
}

// ext4Shutdown is EXT4_IOC_SHUTDOWN; without flushing, unsynced data is lost, as at a power
// cut.
const (
	ext4Shutdown        = 0x8004587d
	shutdownWithoutSync = 2
)

// CutPower ends the disks of NATS servers at once, losing unsynced data, and kills the
// servers. They must have disks with Power. It freezes the servers first: a server that
// outlives its disk could acknowledge data that it did not write.
func (f *Fleet) CutPower(ps ...*Process) error {
	var errs []error
	for _, p := range ps {
		if err := p.Freeze(); err != nil && !errors.Is(err, ErrNotRunning) {
			errs = append(errs, err)
		}
	}
	err := f.thread.do(nil, func() error {
		for _, p := range ps {
			dir, err := os.Open(f.store(p.Name))
			if err == nil {
				err = errors.Join(unix.IoctlSetPointerInt(int(dir.Fd()), ext4Shutdown, shutdownWithoutSync), dir.Close())
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("fleet: cut the power of %s: %w", p.Name, err))
			}
		}
		return errors.Join(errs...)
	})
	for _, p := range ps {
		if kill := p.Kill(); !errors.Is(kill, ErrNotRunning) {
			err = errors.Join(err, kill)
		}
	}
	return err
}

// RestorePower brings the disks back as the cut left them. The servers are
// started by the caller.
func (f *Fleet) RestorePower(ps ...*Process) error {
	for _, p := range ps {
		deadline := time.Now().Add(time.Minute)
		for {
			err := f.thread.do(nil, func() error { return unix.Unmount(f.store(p.Name), 0) })
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("fleet: disk of %s: %w", p.Name, err)
			}
			time.Sleep(20 * time.Millisecond) // the killed process is still letting go of its files
		}
		if err := f.mount(p.Name); err != nil {
			return err
		}
	}
	return nil
}

// fillName is the file that occupies the free space.
const fillName = "full"

// Fill takes all the space that is left on the disk of a NATS server that has
// one of its own in memory, see Options.Disks.
func (f *Fleet) Fill(p *Process) error {
	return f.thread.do(nil, func() (err error) {
		var st unix.Statfs_t
		dir := f.store(p.Name)
		if err := unix.Statfs(dir, &st); err != nil {
			return fmt.Errorf("fleet: disk of %s: %w", p.Name, err)
		}
		if st.Type != unix.TMPFS_MAGIC {
			return fmt.Errorf("fleet: %s has no disk of its own to fill; give it one with Options.Disks", p.Name)
		}
		file, err := os.Create(filepath.Join(dir, fillName))
		if err != nil {
			return fmt.Errorf("fleet: fill the disk of %s: %w", p.Name, err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		if free := int64(st.Bavail) * st.Bsize; free > 0 {
			if err := unix.Fallocate(int(file.Fd()), 0, 0, free); err != nil && !errors.Is(err, unix.ENOSPC) {
				return fmt.Errorf("fleet: fill the disk of %s: %w", p.Name, err)
			}
		}
		return nil
	})
}

// Free releases the space that Fill occupied.
func (f *Fleet) Free(p *Process) error {
	return f.thread.do(nil, func() error {
		if err := os.Remove(filepath.Join(f.store(p.Name), fillName)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("fleet: free the disk of %s: %w", p.Name, err)
		}
		return nil
	})
}
