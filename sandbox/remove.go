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

// RemoveTree removes a directory in which commands ran, with all its contents, including
// unreadable or unwritable directories and trees of any depth. It follows no links and does
// not enter mounts: a mount is an error, after which the rest of the tree remains. A
// missing directory is not an error. No command may run in dir meanwhile. If a command
// shares the directory with the host, RemoveTree may remove an entry that the command swaps
// in, but never the target of a link.
//
// RemoveTree needs a fixed number of open files and as many steps as there are files: it
// moves a nested directory to the top before it empties it.
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

// EmptyTree removes the contents of a directory, as RemoveTree does. The directory itself
// must be readable and writable.
func EmptyTree(root *os.Root) error {
	moved := 0
	// up moves the directory at from to a new name at the top.
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
					// A directory with contents. It must be writable to be moved.
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

// mounted reports whether a directory could not be removed because of a mount: only then is
// it busy.
func mounted(err error) bool { return errors.Is(err, syscall.EBUSY) }

// list reads part of a directory's names, so that a directory of a million entries needs no
// memory for all of them.
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
