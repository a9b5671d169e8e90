//go:build unix

package natsserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/platform/filelock"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestClassify gives the errors that a full or read-only disk returns, which
// no test without root can make.
func TestClassify(t *testing.T) {
	tests := map[string]struct {
		cause error
		want  error
	}{
		"disk full":         {unix.ENOSPC, ErrStoreFull},
		"over quota":        {unix.EDQUOT, ErrStoreFull},
		"read-only":         {unix.EROFS, ErrStoreReadOnly},
		"not permitted":     {unix.EACCES, ErrStoreReadOnly},
		"operation refused": {unix.EPERM, ErrStoreReadOnly},
		"something else":    {unix.EIO, unix.EIO},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := classify("/some/dir", &fs.PathError{Op: "write", Path: "/some/dir/f", Err: tc.cause})
			if !errors.Is(err, tc.want) || !errors.Is(err, tc.cause) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if !strings.Contains(err.Error(), "/some/dir: ") || !strings.Contains(err.Error(), "directory") {
				t.Errorf("error %q names no directory or remedy", err)
			}
		})
	}
}

// TestLockOfEnded locks a directory that is held on behalf of an ended process, as by a
// child that the process was about to start when it was killed.
func TestLockOfEnded(t *testing.T) {
	gone := exec.Command(os.Args[0], "-test.run=^$")
	must.Do(t, gone.Run())
	for name, tc := range map[string]struct {
		pid         int
		held, waits time.Duration
		free        bool
	}{
		"lets go":       {gone.Process.Pid, 100 * time.Millisecond, 100 * time.Millisecond, true},
		"does not":      {gone.Process.Pid, time.Minute, lingering, false},
		"one that runs": {os.Getpid(), 100 * time.Millisecond, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				holder, err := os.Create(filepath.Join(dir, lockName))
				must.Do(t, err)
				if held, err := filelock.Try(holder); err != nil || !held {
					t.Fatal(held, err)
				}
				must.Get(fmt.Fprintln(holder, tc.pid))(t)
				defer time.Sleep(2 * time.Minute) // until the holder has let go
				go func() {
					time.Sleep(tc.held)
					must.Report(t, holder.Close())
				}()
				began := time.Now()
				lock, err := lockDir(dir)
				if waited := time.Since(began); waited < tc.waits || waited > tc.waits+time.Second {
					t.Errorf("it waited %v, want %v", waited, tc.waits)
				}
				if !tc.free {
					if !errors.Is(err, ErrStoreInUse) {
						t.Errorf("got %v, want ErrStoreInUse", err)
					}
					return
				}
				must.Do(t, err)
				must.Report(t, lock.release())
			})
		})
	}
}
