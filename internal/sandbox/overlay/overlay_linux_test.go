package overlay_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/sandbox/overlay"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestMain also runs a process that mounts and is killed, see TestClear.
func TestMain(m *testing.M) {
	if dir := os.Getenv("MOUNT_AND_WAIT"); dir != "" {
		if err := overlay.Mount(filepath.Join(dir, "lower"), filepath.Join(dir, "changes"), filepath.Join(dir, "at")); err != nil {
			println(err.Error())
			os.Exit(1)
		}
		println("mounted")
		time.Sleep(time.Hour) // it is killed
	}
	os.Exit(m.Run())
}

// possible skips a test where mounting is not possible, after it has checked the error.
func possible(t *testing.T) {
	t.Helper()
	err := overlay.Try(t.TempDir())
	if os.Geteuid() != 0 && !errors.Is(err, overlay.ErrUnsupported) {
		t.Fatalf("without rights: %v", err)
	}
	if errors.Is(err, overlay.ErrUnsupported) {
		t.Skip(err)
	}
	must.Do(t, err)
}

// places creates the directories of a mount; their names contain the separators of mount
// options.
func places(t *testing.T) (top, lower, changes, dir string) {
	t.Helper()
	top = filepath.Join(t.TempDir(), `a,b:c\ d`)
	lower, changes, dir = filepath.Join(top, "lower"), filepath.Join(top, "changes"), filepath.Join(top, "at")
	for _, d := range []string{filepath.Join(lower, "d", "e"), changes, dir} {
		must.Do(t, os.MkdirAll(d, 0o700))
	}
	for _, f := range []string{"kept", "removed", "d/f", "d/e/g"} {
		must.Do(t, os.WriteFile(filepath.Join(lower, f), []byte("lower "+f), 0o600))
	}
	t.Cleanup(func() { must.Report(t, overlay.Clear(top)) })
	return top, lower, changes, dir
}

// list returns the paths below a directory with their bytes.
func list(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	must.Do(t, fs.WalkDir(os.DirFS(dir), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, p))
		all = append(all, p+"="+string(data))
		return err
	}))
	return strings.Join(all, " ")
}

// mounts returns the lines of the system's table of mounts that name a path.
func mounts(t *testing.T, path string) string {
	t.Helper()
	data := must.Get(os.ReadFile("/proc/self/mounts"))(t)
	var lines []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, path) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestMount(t *testing.T) {
	possible(t)
	top, lower, changes, dir := places(t)
	was := list(t, lower)
	must.Do(t, overlay.Mount(lower, changes, dir))
	if got := list(t, dir); got != was {
		t.Errorf("it holds %s, not %s", got, was)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	must.Do(t, errors.Join(
		os.Remove(at("removed")), os.Rename(at("d"), at("moved")), os.Mkdir(at("d"), 0o700),
		os.WriteFile(at("moved/f"), []byte("new"), 0o600), os.Link(at("kept"), at("second")),
	))
	if got, want := list(t, dir), "kept=lower kept moved/e/g=lower d/e/g moved/f=new second=lower kept"; got != want {
		t.Errorf("it holds %s, not %s", got, want)
	}
	if got := list(t, lower); got != was {
		t.Errorf("below it is %s, not %s", got, was)
	}
	for range 2 {
		must.Report(t, overlay.Unmount(dir))
	}
	if left := mounts(t, filepath.Dir(top)); left != "" {
		t.Errorf("left is %s", left)
	}
}

// TestClear: the mounts of a killed process are unmounted, and the files below are intact.
func TestClear(t *testing.T) {
	possible(t)
	top, lower, _, dir := places(t)
	was := list(t, lower)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "MOUNT_AND_WAIT="+top)
	out, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	must.Do(t, err)
	said := make([]byte, 100)
	n, err := out.Read(said)
	if got := string(said[:n]); err != nil || got != "mounted\n" {
		t.Fatalf("%q, %v", got, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if list(t, dir) != was {
		t.Fatal("the mount went with its process: there is nothing to clear")
	}
	must.Do(t, overlay.Clear(top))
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("there is still %v, %v", left, err)
	}
	if got := list(t, lower); got != was {
		t.Errorf("below it is %s, not %s", got, was)
	}
	must.Report(t, overlay.Clear(filepath.Join(top, "none")))
}
