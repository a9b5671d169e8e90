// Package overlay mounts directories with the contents of another one, without a copy: a
// file takes space of its own only once it is written.
//
// A mounted directory belongs to the mount namespace of this process, where it outlasts the
// process. [Clear] unmounts the mounts of a former process.
package overlay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrUnsupported is returned where this process cannot mount.
var ErrUnsupported = errors.New("overlay: not possible here")

// The directories in the directory for changes.
const (
	filesDir = "files"
	workDir  = "work"
)

// Mount makes the contents of lower visible in dir, which must be empty. Changes are
// written to the directory changes, which must be empty and on the same file system. lower
// is not changed, and must not change until dir is unmounted. Directories can be renamed
// there as anywhere else. After a crash of the system the changes are unusable.
func Mount(lower, changes, dir string) error {
	files, work := filepath.Join(changes, filesDir), filepath.Join(changes, workDir)
	if err := errors.Join(os.Mkdir(files, 0o700), os.Mkdir(work, 0o700)); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	if err := mount(lower, files, work, dir); err != nil {
		return fmt.Errorf("overlay: mount %s: %w", dir, err)
	}
	return nil
}

// Unmount ends a mount. Processes with open files there keep them. A directory that is not
// mounted, or missing, is no error.
func Unmount(dir string) error {
	if err := unmount(dir); err != nil {
		return fmt.Errorf("overlay: unmount %s: %w", dir, err)
	}
	return nil
}

// Clear unmounts all mounts below a directory, which need not exist.
func Clear(dir string) error {
	if err := clearBelow(dir); err != nil {
		return fmt.Errorf("overlay: unmount everything below %s: %w", dir, err)
	}
	return nil
}

// Try mounts a directory below dir, and returns the reason if that fails or if the mount
// does not work like any other directory.
func Try(dir string) (err error) {
	at, err := os.MkdirTemp(dir, "try-")
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(at)) }()
	lower, changes, merged := filepath.Join(at, "lower"), filepath.Join(at, "changes"), filepath.Join(at, "merged")
	below := filepath.Join("d", "f")
	if err := errors.Join(os.MkdirAll(filepath.Join(lower, "d"), 0o700), os.WriteFile(filepath.Join(lower, below), []byte("lower"), 0o600), os.Mkdir(changes, 0o700), os.Mkdir(merged, 0o700)); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	if err := Mount(lower, changes, merged); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, Unmount(merged)) }()
	before, err := os.Stat(filepath.Join(lower, below))
	if err == nil {
		var now os.FileInfo
		if now, err = os.Stat(filepath.Join(merged, below)); err == nil && !sameInode(before, now) {
			err = fmt.Errorf("%w: files have other inodes there", ErrUnsupported)
		}
	}
	if err == nil {
		err = errors.Join(
			os.WriteFile(filepath.Join(merged, below), []byte("upper"), 0o600),
			os.Rename(filepath.Join(merged, "d"), filepath.Join(merged, "e")),
		)
	}
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	return nil
}
