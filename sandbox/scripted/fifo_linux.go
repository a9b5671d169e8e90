package scripted

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// makeFIFO creates a FIFO. It opens the directory first, so that no link is followed.
func makeFIFO(root *os.Root, name string) error {
	dir, err := root.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Mkfifoat(int(dir.Fd()), filepath.Base(name), 0o644) //nolint:gosec // a descriptor
}
