// Package overlay mounts directories that begin as what another one holds, without a copy
// of it: a file takes room of its own from when it is first written.
//
// A directory that is mounted belongs to the namespace of mounts of this process, where it
// outlasts the process. [Clear] unmounts what a former one left.
package overlay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrUnsupported is returned where this process cannot mount.
var ErrUnsupported = errors.New("overlay: not possible here")

// The directories in the one that takes the changes.
const (
	filesDir = "files"
	workDir  = "work"
)

// Mount makes dir, which must be empty, hold what lower holds. What is changed there lies
// in the directory changes, which must be empty and on the same file system; lower stays
// as it is, and nothing may change it until dir is unmounted. A directory can be renamed
// there as anywhere else. After a crash of the system the changes are of no use.
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

// Unmount ends a mount. What still has a file there open keeps it. A directory that is not
// mounted, or not there, is no error.
func Unmount(dir string) error {
	if err := unmount(dir); err != nil {
		return fmt.Errorf("overlay: unmount %s: %w", dir, err)
	}
	return nil
}

// Clear unmounts all that is mounted below a directory, which need not exist.
func Clear(dir string) error {
	if err := clearBelow(dir); err != nil {
		return fmt.Errorf("overlay: unmount what lies below %s: %w", dir, err)
	}
	return nil
}

// Try mounts a directory below dir, and returns why not, or what does not work there as in
// any other directory.
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
