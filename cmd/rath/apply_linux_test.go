package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// onTerminal runs the command on a terminal, types a text, and returns the output.
func onTerminal(t *testing.T, dir, typed string, args ...string) string {
	t.Helper()
	ptm := must.Get(os.OpenFile("/dev/ptmx", os.O_RDWR, 0))(t)
	defer ptm.Close()
	must.Do(t, unix.IoctlSetPointerInt(int(ptm.Fd()), unix.TIOCSPTLCK, 0))
	n := must.Get(unix.IoctlGetInt(int(ptm.Fd()), unix.TIOCGPTN))(t)
	tty := must.Get(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	defer tty.Close()
	must.Do(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	exe := must.Get(os.Executable())(t)
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Dir, cmd.Env = dir, append(ownEnv(dir), "TERM=xterm", "NO_COLOR=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must.Do(t, cmd.Start())
	tty.Close()
	must.Get(ptm.WriteString(typed))(t)
	var shown strings.Builder
	buf := make([]byte, 4096)
	for { // until no process has the other end open
		n, err := ptm.Read(buf)
		shown.Write(buf[:n])
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, shown.String())
	}
	return strings.ReplaceAll(shown.String(), "\r", "")
}

// TestApplyAsks: on a terminal the command asks after the diff, before any file is
// written.
func TestApplyAsks(t *testing.T) {
	if isPlayed(t) {
		return
	}
	dir := t.TempDir()
	script := "Edits.\n\n-- edit --\noffers: write_workspace_file\nnot result: write_workspace_file\n" +
		"call: write_workspace_file {\"path\":\"a.txt\",\"content\":\"two\\n\"}\n\n-- done --\n\ndone\n"
	file := filepath.Join(dir, "work", "a.txt")
	must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
	for name, text := range map[string]string{filepath.Join(dir, "edit.txtar"): script, file: "one\n"} {
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
	}
	for _, c := range []struct{ typed, says, file string }{
		{"n\n", "rath apply", "one\n"},
		{"\n", "rath apply", "one\n"},
		{"y\n", "", "two\n"},
	} {
		shown := onTerminal(t, dir, c.typed, "run", "-C", "work", "--script", "edit.txtar", "-m", "go", "--apply")
		diff, question := strings.Index(shown, "+two"), strings.Index(shown, "apply this to work? [y/N]")
		if diff < 0 || question < diff || !strings.Contains(shown, c.says) {
			t.Errorf("typed %q:\n%s", c.typed, shown)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != c.file {
			t.Errorf("typed %q: the file holds %q, %v", c.typed, got, err)
		}
	}
	must.Do(t, os.WriteFile(file, []byte("one\n"), 0o600))
	if shown := onTerminal(t, dir, "", "run", "-C", "work", "--script", "edit.txtar", "-m", "go", "--apply", "--yes"); strings.Contains(shown, "[y/N]") {
		t.Errorf("with --yes:\n%s", shown)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "two\n" {
		t.Errorf("with --yes: the file holds %q, %v", got, err)
	}
}
