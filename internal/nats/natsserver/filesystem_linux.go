package natsserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// syncFlag is FS_SYNC_FL of <linux/fs.h>.
const syncFlag = 0x8

// mark sets or clears the synchronous attribute of a file or a directory.
func mark(path string, on bool) error {
	failed := func(err error) error {
		if errors.Is(err, unix.ENOENT) {
			return nil // its directory reports the removal
		}
		return &fs.PathError{Op: "mark as synchronous (chattr +S)", Path: path, Err: err}
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return failed(err)
	}
	have, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	want := have &^ syncFlag
	if on {
		want |= syncFlag
	}
	if err == nil && want != have {
		err = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(want))
	}
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return failed(err)
	}
	return nil
}

// unmark removes the marks from all entries of a directory.
func unmark(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil && (e.IsDir() || e.Type().IsRegular()):
			return mark(path, false)
		}
		return err
	})
}

// forgetFiles undoes the changes of openFiles to the files of a server that syncs each
// write itself, or none.
func forgetFiles(dir string) error {
	if err := unknownFileSystem(dir); err != nil || isMemory(dir) {
		return nil // there are no marks
	}
	return unmark(filepath.Join(dir, filesDir))
}

// isMemory reports whether a directory lies in a file system without a disk.
func isMemory(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.TMPFS_MAGIC
}

// unknownFileSystem returns nil for a file system that keeps the order that files relies
// on.
func unknownFileSystem(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	device := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	for line := range strings.Lines(string(mounts)) {
		// id parent device root mount options … - type source options
		left, right, _ := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 6 || len(r) < 3 || l[2] != device {
			continue
		}
		switch r[0] {
		case "tmpfs":
			return nil
		case "ext4":
			for o := range strings.SplitSeq(r[2], ",") {
				switch o {
				case "data=writeback", "nobarrier", "barrier=0":
					return fmt.Errorf("the file system of %s is mounted with %s", dir, o)
				}
			}
			return nil
		}
		return fmt.Errorf("of file systems ext4 is known, and %s lies on %s", dir, r[0])
	}
	return fmt.Errorf("no mount of the device of %s is listed", dir)
}
