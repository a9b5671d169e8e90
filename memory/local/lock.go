package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/rathcluster/rath/internal/filelock"
)

// acquire locks the file at path until filelock.Release or the end of the process. The
// file names the process that has it, for people.
func acquire(path string) (_ *os.File, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	taken, err := filelock.Try(file)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if !taken {
		owner, _ := io.ReadAll(io.LimitReader(file, 20)) // for the message only
		return nil, fmt.Errorf("%w by process %s: stop it or name another directory", ErrLocked, strings.TrimSpace(string(owner)))
	}
	if err := file.Truncate(0); err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(file, os.Getpid())
	return file, err
}

// syncDir waits until the names in a directory are on the medium. Windows has no such
// wait.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
