package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/sandbox/overlay"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
)

// TestOverlay: commands over an overlay reach neither the shared directory nor the
// directory for changes, have the same abilities as elsewhere, and are held to the limit of
// disk, in which shared files count, too.
func TestOverlay(t *testing.T) {
	if err := overlay.Try(t.TempDir()); err != nil {
		if errors.Is(err, overlay.ErrUnsupported) && os.Geteuid() != 0 {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	top := t.TempDir()
	lower, changes, dir := filepath.Join(top, "lower"), filepath.Join(top, "changes"), filepath.Join(top, "dir")
	for _, d := range []string{filepath.Join(lower, "d", "e"), changes, dir} {
		must.Do(t, os.MkdirAll(d, 0o700))
	}
	for name, size := range map[string]int{"d/e/f": 1, "large": 6 << 20} {
		must.Do(t, os.WriteFile(filepath.Join(lower, name), []byte(strings.Repeat("x", size)), 0o644))
	}
	must.Do(t, overlay.Mount(lower, changes, dir))
	t.Cleanup(func() { must.Report(t, overlay.Unmount(dir)) })
	box := must.Get(local.New(&local.Options{State: t.TempDir()}).Open(t.Context(), sandbox.Spec{Dir: dir, Limits: sandbox.Limits{Disk: 8 << 20}}))(t)
	defer box.Close()
	sh := func(text string) sandbox.Exit {
		t.Helper()
		e := must.Get(box.Exec(t.Context(), sandbox.Cmd{Argv: []string{"sh", "-c", text}, Env: map[string]string{"TOP": top}}))(t)
		return e
	}
	for _, reach := range []string{
		"cat $TOP/lower/d/e/f", "ls $TOP/changes", "echo > $TOP/lower/new", "echo > $TOP/changes/files/new",
		"mknod d/e/f2 c 0 0", "mknod white c 0 0", "mount -t tmpfs none d",
	} {
		if e := sh(reach); e.Ended == sandbox.Exited && e.Code == 0 {
			t.Errorf("%s: succeeded", reach)
		}
	}
	e := sh(`set -e
mv d moved; test ! -e d; mv moved/e .; cat e/f; rmdir moved
ln -s e/f link; cat link; mkfifo p; (echo p > p &); cat p; rm p
rm -r e; mkdir e; ls -A e; x=$(mktemp); echo t > $x; mv $x e/t; cat e/t; pwd`)
	if want := "xx" + "p\nt\n" + dir + "\n"; e.Ended != sandbox.Exited || e.Code != 0 || string(e.Stdout.Bytes()) != want {
		t.Errorf("%s %d: %s%s", e.Ended, e.Code, e.Stdout.Bytes(), e.Stderr.Bytes())
	}
	if e := sh("head -c 4000000 /dev/zero > more; sleep 20"); e.Ended != sandbox.DiskFull {
		t.Errorf("over the limit it %s with %d", e.Ended, e.Code)
	}
	if data, err := os.ReadFile(filepath.Join(lower, "d", "e", "f")); err != nil || string(data) != "x" {
		t.Errorf("below lies %q, %v", data, err)
	}
}
