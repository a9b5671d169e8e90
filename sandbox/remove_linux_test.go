package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
)

// TestRemoveTreeWithMount: RemoveTree does not enter mounts in a tree, at any depth.
func TestRemoveTreeWithMount(t *testing.T) {
	for _, at := range []string{".", "d", "d/e", "d/e/f"} {
		keep, dir := t.TempDir(), t.TempDir()
		file, place := filepath.Join(keep, "file"), filepath.Join(dir, filepath.FromSlash(at))
		must.Do(t, errors.Join(os.WriteFile(file, nil, 0o600), os.MkdirAll(place, 0o700)))
		err := syscall.Mount(keep, place, "", syscall.MS_BIND, "")
		if errors.Is(err, syscall.EPERM) && os.Geteuid() != 0 {
			t.Skip("nothing can be mounted here")
		}
		must.Do(t, err)
		mounted, err := os.Open(place) // a directory above it may be moved
		must.Do(t, err)
		if err := sandbox.RemoveTree(dir); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("%s: %v", at, err)
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s: a file of what is mounted is gone: %v", at, err)
		}
		if err := errors.Join(syscall.Unmount(fmt.Sprintf("/proc/self/fd/%d", mounted.Fd()), syscall.MNT_DETACH), mounted.Close(), sandbox.RemoveTree(dir)); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
}
