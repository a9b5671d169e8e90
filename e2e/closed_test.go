//go:build e2e && linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// closingScript closes directories by commands, and verifies at each call that the earlier
// ones did no harm: the second one finds the file, the third one reads in a closed
// directory.
const closingScript = `
-- close one --
round: 1
call: run_shell_command {"cmd":"mkdir -p d/e && echo one > d/e/f && chmod 400 d/e/f && chmod 555 d/e d"}

-- close all --
round: 2
call: run_shell_command {"cmd":"cat d/e/f && mkdir x && echo two > x/f && chmod 0 x/f x d/e d ."}

-- too much --
round: 3
call: run_shell_command {"cmd":"cat x/f && chmod 700 . x && mkdir y && truncate -s 3000000000 x/big && chmod 555 y x"}

-- go on --
round: 4
call: run_shell_command {"cmd":"cat x/f d/e/f && ls"}

-- say --
round: 5

Done.
`

// TestClosedDirectories runs commands that close directories, and one that writes more than
// a workspace can hold, as an unprivileged user, like the image. The session's sandbox
// stays usable, and no file remains.
func TestClosedDirectories(t *testing.T) {
	d := newDesk(t)
	d.file("closing.txtar", closingScript)
	must.Do(t, os.Mkdir(filepath.Join(d.dir, "in"), 0o755))
	d.file("in/notes.txt", "a note\n")
	// Where the other user may go: the test's directory is below one of its own user.
	home, err := os.MkdirTemp("", "closed-")
	must.Do(t, err)
	defer os.RemoveAll(home)
	const user = 65534
	command(t, d.dir, nil, "cp", "-r", "closing.txtar", "in", filepath.Join(d.bin, "rath"), home)
	command(t, d.dir, nil, "chown", "-R", "65534:65534", home)
	d.env = append(d.env, "HOME="+home)
	as := func(args ...string) outcome {
		cmd := exec.Command(filepath.Join(home, "rath"), args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		return d.begin(cmd).wait()
	}
	d.dir = home
	as("run", "-C", "in", "--script", "closing.txtar", "-m", "close", "--id", "r").want(t, 0, "Done.")
	show := as("show", "r", "--format", "jsonl")
	show.want(t, 0)
	for _, want := range []string{`one`, `two`, `more than 2684354560 bytes`} {
		if !strings.Contains(show.stdout, want) {
			t.Errorf("no %q in %v", want, show)
		}
	}
	as("run", "-C", "in", "--script", "closing.txtar", "-m", "close").want(t, 0, "Done.")
	left, err := filepath.Glob(filepath.Join(home, ".rath", "work", "*", "*", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("work directories are left: %v, %v", left, err)
	}
}
