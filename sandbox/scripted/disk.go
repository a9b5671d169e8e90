package scripted

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// disk is the file system of commands: the workspace and the temporary files, under their
// names on the host, and a few devices. No link leads out of either.
type disk struct{ dirs []*os.Root }

func openDisk(names ...string) (*disk, error) {
	d := new(disk)
	for _, name := range names {
		root, err := os.OpenRoot(name)
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.dirs = append(d.dirs, root)
	}
	return d, nil
}

func (d *disk) close() error {
	var errs []error
	for _, root := range d.dirs {
		errs = append(errs, root.Close())
	}
	return errors.Join(errs...)
}

// at resolves an absolute name; a name outside does not exist.
func (d *disk) at(name string) (*os.Root, string, error) {
	for _, root := range d.dirs {
		if name == root.Name() {
			return root, ".", nil
		}
		if rel, ok := strings.CutPrefix(name, root.Name()+string(filepath.Separator)); ok {
			return root, rel, nil
		}
	}
	return nil, "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (d *disk) open(name string, flag int, perm fs.FileMode) (io.ReadWriteCloser, error) {
	switch name {
	case "/dev/null":
		return device{strings.NewReader("")}, nil
	case "/dev/zero":
		return device{zeros{}}, nil
	case "/dev/urandom":
		return device{rand.Reader}, nil
	}
	root, rel, err := d.at(name)
	if err != nil {
		return nil, err
	}
	return root.OpenFile(rel, flag, perm)
}

func (d *disk) stat(name string, follow bool) (fs.FileInfo, error) {
	if name == "/" {
		return d.dirs[0].Stat(".")
	}
	root, rel, err := d.at(name)
	if err != nil {
		return nil, err
	}
	if follow {
		return root.Stat(rel)
	}
	return root.Lstat(rel)
}

func (d *disk) list(name string) ([]fs.DirEntry, error) {
	root, rel, err := d.at(name)
	if err != nil {
		return nil, err
	}
	return fs.ReadDir(root.FS(), path.Clean(filepath.ToSlash(rel)))
}

// device is a file without a directory.
type device struct{ io.Reader }

func (device) Write(p []byte) (int, error) { return len(p), nil }
func (device) Close() error                { return nil }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
