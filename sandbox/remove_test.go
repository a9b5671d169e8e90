//go:build unix

package sandbox_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

// TestMain also runs as a process of a user without privileges, see TestRemoveTree: root
// can access every directory.
func TestMain(m *testing.M) {
	if os.Getenv("MAKE_DEEP") != "" {
		for range 3000 {
			if err := errors.Join(os.Mkdir("d", 0o755), syscall.Chdir("d")); err != nil {
				println(err.Error())
				os.Exit(1)
			}
		}
		os.Exit(0)
	}
	if dir := os.Getenv("REMOVE_TREE"); dir != "" {
		if err := sandbox.RemoveTree(dir); err != nil {
			println(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	scratch.InMemory()
	os.Exit(m.Run())
}

func TestRemoveTree(t *testing.T) {
	for name, script := range map[string]string{
		"nothing":                  "rmdir ../dir",
		"empty":                    "",
		"closed directories":       "mkdir -p a/b/c && touch a/b/c/f && chmod 0 a/b/c && chmod 555 a/b && chmod 0 a && chmod 0 .",
		"read-only":                "mkdir d && touch d/f && chmod 444 d/f && chmod 555 d .",
		"names like those it uses": "mkdir -p .moved-0/.moved-1/.moved-0 .moved-1/x && touch .moved-2 && chmod 555 .moved-0 .moved-1",
		"links":                    "mkdir d && ln -s / d/root && ln -s .. d/up && ln -s $KEEP d/keep && ln -s $KEEP keep && chmod 555 d",
		"special files":            "mkfifo p && chmod 0 p",
		"many files":               "mkdir d && cd d && seq 1 5000 | xargs touch && chmod 555 .",
		"many directories":         "seq 1 1000 | sed 's,$,/d,' | xargs mkdir -p",
		"deep":                     "exec ../self", // too deep for a shell
	} {
		t.Run(name, func(t *testing.T) {
			outer, err := os.MkdirTemp("", "tree") // t.TempDir could not remove such a tree
			must.Do(t, err)
			defer os.RemoveAll(outer)
			dir, keep := filepath.Join(outer, "dir"), filepath.Join(outer, "keep")
			for _, d := range []string{dir, keep} {
				must.Do(t, os.Mkdir(d, 0o777))
			}
			must.Do(t, os.WriteFile(filepath.Join(keep, "f"), nil, 0o666))
			attr := &syscall.SysProcAttr{}
			if os.Getuid() == 0 {
				attr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
				for _, d := range []string{outer, dir, keep} {
					must.Do(t, os.Chown(d, 65534, 65534))
				}
			}
			as := func(dir string, env []string, argv ...string) {
				t.Helper()
				c := exec.Command(argv[0], argv[1:]...)
				c.Dir, c.SysProcAttr, c.Env = dir, attr, append(os.Environ(), env...)
				if out, err := c.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			self := filepath.Join(outer, "self") // readable for the user
			exe, err := os.Executable()
			must.Do(t, err)
			data, err := os.ReadFile(exe)
			if err == nil {
				err = os.WriteFile(self, data, 0o755)
			}
			must.Do(t, err)
			as(dir, []string{"KEEP=" + keep, "MAKE_DEEP=1"}, "sh", "-c", script)
			as(outer, []string{"REMOVE_TREE=" + dir}, "sh", "-c", "ulimit -n 64 && exec ./self")
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the directory is still there: %v", err)
			} else if len(script) > len("rmdir ../dir") {
				sandboxtest.End(t, "leave to be removed: "+name, "removed, nothing outside is touched")
			}
			if _, err := os.Lstat(filepath.Join(keep, "f")); err != nil {
				t.Error(err)
			}
		})
	}
}
