package confinement

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestOpenClosed opens a directory during a scan, as its command may: the directory stays
// open. A directory that no command changed is closed again.
func TestOpenClosed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		during os.FileMode // 0: nothing
		closed os.FileMode
		want   os.FileMode
	}{
		{"left alone", 0, 0, 0},
		{"left alone with the sticky bit", 0, os.ModeSticky, os.ModeSticky},
		{"opened by the command", 0o700, 0, 0o700},
		{"opened by the command to others", 0o755, 0, 0o755},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "d")
			must.Do(t, os.Mkdir(name, 0o700))
			must.Do(t, os.Chmod(name, tt.closed))
			dir := must.Get(unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))(t)
			defer unix.Close(dir)
			fd, closeAgain := must.Pair(openClosed(dir))(t)
			defer unix.Close(fd)
			if tt.during != 0 {
				must.Do(t, os.Chmod(name, tt.during))
			}
			closeAgain()
			fi := must.Get(os.Stat(name))(t)
			if got := fi.Mode() &^ os.ModeDir; got != tt.want {
				t.Errorf("the mode is %v, want %v", got, tt.want)
			}
			_ = os.Chmod(name, 0o700)
		})
	}
}

// TestWatchRestsFirst ends a command that begins by opening a directory: no scan has
// visited the directory, which would have closed it again.
func TestWatchRestsFirst(t *testing.T) {
	parent := t.TempDir()
	name := filepath.Join(parent, "d")
	must.Do(t, os.Mkdir(name, 0))
	defer os.Chmod(name, 0o700)
	dir := must.Get(unix.Open(parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(dir)
	changed := func() (st unix.Stat_t) {
		t.Helper()
		must.Do(t, unix.Stat(name, &st))
		return st
	}
	before := changed()
	synctest.Test(t, func(*testing.T) {
		done := make(chan struct{})
		time.AfterFunc(minRest/4, func() { close(done) })
		(&disk{limit: mostUse(1 << 20), dirs: []int{dir}}).watch(make(chan string, 1), done)
	})
	if now := changed(); now.Ctim != before.Ctim {
		t.Errorf("the mode of a closed directory was changed at %v by a watch that ended at once", now.Ctim)
	}
}
