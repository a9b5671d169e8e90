//go:build unix && !linux

package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rathcluster/rath/internal/sandbox/proc"
)

// wholeTree: a process that leaves the group is not found.
const wholeTree = false

// baseEnv returns the environment variables of every command.
func baseEnv(b *box) map[string]string {
	return map[string]string{"PATH": b.o.Path, "HOME": b.dir, "LANG": "C.UTF-8", "TMPDIR": b.tmp}
}

// tree is a process group. A process that leaves the group is not found again; the
// isolation level process accepts that.
type tree struct{ pgid int }

func treeAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func adopt(p *os.Process) (tree, error) { return tree{pgid: p.Pid}, nil }

func (t tree) kill()  { syscall.Kill(-t.pgid, syscall.SIGKILL) }
func (t tree) close() {}

func exitOf(s *os.ProcessState) (code, signal int) {
	ws, ok := s.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return 128 + int(ws.Signal()), int(ws.Signal())
	}
	return s.ExitCode(), 0
}

// lookPath finds a program in the PATH of the command's environment.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, v := range env {
		list, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			p := filepath.Join(dir, name)
			if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
				return p, nil
			}
		}
		return "", &fs.PathError{Op: "find", Path: name, Err: fs.ErrNotExist}
	}
	return "", errors.New("the command has no PATH")
}

// killLeft kills the process groups that are recorded in a sandbox's folder
// and whose leader is still the recorded one.
func killLeft(ctx context.Context, own string) error {
	runs, err := readRuns(filepath.Join(own, runsFile))
	if err != nil {
		return err
	}
	for _, r := range runs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if now, ok := proc.Started(r.pid); ok && now == r.started {
			syscall.Kill(-r.pid, syscall.SIGKILL)
		}
	}
	return nil
}
