//go:build unix

package mcp

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// lock waits for the lock of a file, which is that of a file beside it: the file itself is
// replaced as a whole.
func lock(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return func() {}, err
	}
	for {
		switch err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err {
		case nil:
			return func() { _ = errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close()) }, nil
		case syscall.EINTR:
		default:
			return func() {}, errors.Join(err, f.Close())
		}
	}
}
