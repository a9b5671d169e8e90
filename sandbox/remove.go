package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// RemoveTree removes a directory in which commands ran, with all that they left there:
// directories that may not be read or written, and trees of any depth. It follows no
// links, and into nothing that is mounted there: that is an error, after which what was not
// removed yet stays. A directory that is not there is no error. No command may run there meanwhile;
// in a directory that a command shares with the host, what it swaps in is at most
// removed itself, never what a link points to.
//
// It needs a fixed number of open files and as many steps as there are files: a
// directory that is found in another one is moved up to the top before it is emptied.
func RemoveTree(dir string) error {
	if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil // empty, a file or a link
	} else if mounted(err) {
		return fmt.Errorf("sandbox: remove a tree: %w; unmount it first", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("sandbox: remove a tree: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("sandbox: remove a tree: %w", err)
	}
	err = EmptyTree(root)
	if err := errors.Join(err, root.Close()); err != nil {
		return fmt.Errorf("sandbox: remove a tree: %w", err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sandbox: remove a tree: %w", err)
	}
	return nil
}

// EmptyTree removes what is in a directory, as RemoveTree does. The directory itself must be
// readable and writable.
func EmptyTree(root *os.Root) error {
	moved := 0
	// up gives a directory that lies at from a name at the top.
	up := func(from string) error {
		for {
			name := ".moved-" + strconv.Itoa(moved)
			moved++
			if _, err := root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
				return root.Rename(from, name)
			}
		}
	}
	for {
		names, err := list(root, ".")
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			if err := root.Remove(name); err == nil || errors.Is(err, fs.ErrNotExist) {
				continue
			} else if mounted(err) {
				return err
			}
			if err := root.Chmod(name, 0o700); err != nil {
				return err
			}
			for {
				below, err := list(root, name)
				if err != nil {
					return err
				}
				if len(below) == 0 {
					break
				}
				for _, b := range below {
					child := name + "/" + b
					if err := root.Remove(child); err == nil || errors.Is(err, fs.ErrNotExist) {
						continue
					} else if mounted(err) {
						return err
					}
					// A directory that holds something. To be moved it must be writable.
					if err := root.Chmod(child, 0o700); err != nil {
						return err
					}
					if err := up(child); err != nil {
						return err
					}
				}
			}
			if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
}

// mounted reports whether a directory could not be removed because something is mounted
// there: only then is it busy.
func mounted(err error) bool { return errors.Is(err, syscall.EBUSY) }

// list reads a part of a directory's names, so that one of a million needs no memory
// for all.
func list(root *os.Root, name string) ([]string, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const most = 4096
	names, err := f.Readdirnames(most)
	if err == io.EOF {
		err = nil
	}
	return names, err
}
