//go:build linux

package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// disk gives a process a disk of its own for its store. It is in memory, and
// only the fleet sees it.
func (f *Fleet) disk(name string, size int64) error {
	return f.thread.do(nil, func() error {
		if err := unix.Mount("none", f.dir(name, "store"), "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
			return fmt.Errorf("fleet: disk of %s: %w; run it as root", name, err)
		}
		return nil
	})
}

// fillName is the file that takes what is free.
const fillName = "full"

// Fill takes all the space that is left on the disk of a NATS server that has
// one of its own, see Options.Disks.
func (f *Fleet) Fill(p *Process) error {
	return f.thread.do(nil, func() (err error) {
		var st unix.Statfs_t
		dir := f.dir(p.Name, "store")
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

// Free gives back what Fill has taken.
func (f *Fleet) Free(p *Process) error {
	return f.thread.do(nil, func() error {
		if err := os.Remove(filepath.Join(f.dir(p.Name, "store"), fillName)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("fleet: free the disk of %s: %w", p.Name, err)
		}
		return nil
	})
}
