package local

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// wholeTree: no process leaves a job.
const wholeTree = true

// baseEnv returns the environment variables of every command. Windows programs do not start
// without the first few.
func baseEnv(b *box) map[string]string {
	path := b.o.Path
	if path == DefaultPath {
		path = os.Getenv("PATH")
	}
	return map[string]string{
		"SYSTEMROOT": os.Getenv("SYSTEMROOT"), "COMSPEC": os.Getenv("COMSPEC"), "PATHEXT": os.Getenv("PATHEXT"),
		"PATH": path, "HOME": b.dir, "USERPROFILE": b.dir, "TMP": b.tmp, "TEMP": b.tmp,
	}
}

// tree is a job object: it includes the descendants of its processes, and the system kills
// them all when the last handle is closed, also if this process dies.
type tree struct{ job windows.Handle }

// treeAttr starts a process suspended, so that it is in the job before it can
// start others.
func treeAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW}
}

var resumeProcess = sync.OnceValue(func() *windows.LazyProc {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("NtResumeProcess")
})

func adopt(p *os.Process) (t tree, err error) {
	t.job, err = windows.CreateJobObject(nil, nil)
	if err != nil {
		return t, fmt.Errorf("create job: %w", err)
	}
	defer func() {
		if err != nil {
			windows.CloseHandle(t.job)
		}
	}()
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	if _, err = windows.SetInformationJobObject(t.job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		return t, fmt.Errorf("set up job: %w", err)
	}
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE|windows.PROCESS_SUSPEND_RESUME, false, uint32(p.Pid))
	if err != nil {
		return t, fmt.Errorf("open process: %w", err)
	}
	defer windows.CloseHandle(h)
	if err = windows.AssignProcessToJobObject(t.job, h); err != nil {
		return t, fmt.Errorf("put process into job: %w", err)
	}
	if status, _, _ := resumeProcess().Call(uintptr(h)); status != 0 {
		return t, fmt.Errorf("resume process: %w", windows.NTStatus(status))
	}
	return t, nil
}

func (t tree) kill()  { windows.TerminateJobObject(t.job, 128+9) }
func (t tree) close() { windows.CloseHandle(t.job) }

func exitOf(s *os.ProcessState) (code, signal int) { return s.ExitCode(), 0 }

// lookPath finds a program the way Windows does, in this process's PATH.
func lookPath(name string, _ []string) (string, error) { return exec.LookPath(name) }

// killLeft has no processes to kill: a job dies with the process that created it.
func killLeft(ctx context.Context, _ string) error { return ctx.Err() }

// ownedByUs is true: the temporary directory of Windows is the user's own.
func ownedByUs(fs.FileInfo) bool { return true }
