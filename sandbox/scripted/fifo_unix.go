//go:build unix && !linux

package scripted

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// makeFIFO creates a FIFO, in a directory that lies inside.
func makeFIFO(root *os.Root, name string) error {
	if _, err := root.Stat(filepath.Dir(name)); err != nil {
		return err
	}
	return unix.Mkfifo(filepath.Join(root.Name(), name), 0o644)
}
