package local

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supervisorName is the argv[0] under which this binary is a supervisor.
const supervisorName = "rath-sandbox-supervisor"

// The files a supervisor is started with, besides the command's three.
const (
	controlFD   = 3 + iota // job, then nothing; its end means stop
	statusFD               // result, written once
	workspaceFD            // the workspace directory
	cwdFD                  // where the command runs
	runsFD                 // append-only list of supervisors
)

// job is what a supervisor is told to do.
type job struct {
	Argv     []string `json:"argv"`
	Env      []string `json:"env"`
	Confine  bool     `json:"confine,omitempty"`
	Probe    string   `json:"probe,omitempty"` // a file to fail to read, instead of running a command
	ABI      int      `json:"abi,omitempty"`   // no later Landlock ABI than this
	ReadOnly []string `json:"read_only,omitempty"`
	Tmp      string   `json:"tmp"`
	Tasks    int      `json:"tasks,omitempty"` // processes and threads at one time, when confined
}

// Limits of a command that every kernel enforces.
const (
	maxOpenFiles = 4096
	startFiles   = 1024
	killPatience = 5 * time.Second
)

// supervise is the life of a supervisor; in other processes it returns.
func supervise() {
	if len(os.Args) == 0 || os.Args[0] != supervisorName {
		return
	}
	r := superviseJob()
	data, err := json.Marshal(r)
	if err == nil {
		_, err = unix.Write(statusFD, data)
	}
	if err != nil {
		// Nobody is left to tell; the host sees a supervisor without a result.
		syscall.Exit(1)
	}
	syscall.Exit(0) // not os.Exit, which may run hooks of the host program
}

func superviseJob() (r result) {
	fail := func(what string, err error) result { return result{Failed: fmt.Sprintf("%s: %v", what, err)} }
	if err := closeOnExec(3); err != nil {
		return fail("close files", err)
	}
	control := os.NewFile(controlFD, "control")
	j, err := readJob(control)
	if err != nil {
		return fail("read job", err)
	}
	if j.Probe != "" {
		return probe(j)
	}
	started, ok := startTime(os.Getpid())
	if !ok {
		return fail("read /proc/self/stat", errors.New("no start time"))
	}
	if _, err := unix.Write(runsFD, fmt.Appendf(nil, "%d %d\n", os.Getpid(), started)); err != nil {
		return fail("record the supervisor", err)
	}
	// What a command detaches becomes this process's child instead of init's.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fail("become subreaper", err)
	}
	if err := limitResources(); err != nil {
		return fail("set resource limits", err)
	}
	if err := unix.Fchdir(cwdFD); err != nil {
		return fail("enter the directory", err)
	}
	syscall.Umask(0o022)

	program, err := lookPath(j.Argv[0], j.Env)
	if err != nil {
		return result{Refused: err.Error()}
	}
	f := &forks{limit: j.Tasks, budget: j.Tasks}
	pid, err := spawn(program, j, f)
	if refused, ok := errors.AsType[*startError](err); ok {
		return result{Refused: refused.Error()}
	}
	if err != nil {
		return fail("confine the command", err)
	}
	// Let the kernel's memory killer prefer the command to its host. Best
	// effort: it changes who dies first, not what a command may do.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("500"), 0)
	if err := detachStdio(); err != nil {
		unix.Kill(pid, unix.SIGKILL)
		return fail("detach standard files", err)
	}
	return tend(pid, control, f)
}

// readJob reads a length and that many bytes of JSON.
func readJob(r io.Reader) (job, error) {
	var j job
	var size uint32
	if err := binary.Read(r, binary.LittleEndian, &size); err != nil {
		return j, err
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return j, err
	}
	return j, json.Unmarshal(data, &j)
}

func limitResources() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &have); err != nil {
		return err
	}
	hard := min(have.Max, maxOpenFiles)
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(hard, startFiles), Max: hard})
}

// closeOnExec keeps every file from first on out of the command, also those
// that the host inherited from its own parent.
func closeOnExec(first uint) error {
	err := unix.CloseRange(first, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, n := range names {
		var fd int
		if _, err := fmt.Sscan(n.Name(), &fd); err == nil && fd >= int(first) {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// detachStdio gives up the command's pipes, so that they end with the command.
func detachStdio() error {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return err
		}
	}
	return unix.Close(null)
}

// startError says why a program could not be started.
type startError struct {
	program string
	err     error
}

func (e *startError) Error() string {
	return fmt.Sprintf("cannot start %q: %v", e.program, e.err)
}

// lookPath finds a program in the PATH of the command's environment. A name
// with a slash is taken as it is, relative to the command's directory.
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
			if dir == "" {
				dir = "."
			}
			p := dir + "/" + name
			if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
				return p, nil
			}
		}
		return "", &startError{name, fmt.Errorf("%w in %s", fs.ErrNotExist, list)}
	}
	return "", &startError{name, errors.New("the command has no PATH")}
}

// spawn starts the program. Confinement is a property of a thread and is
// inherited by what the thread starts, so only the thread that starts the
// command is confined: the supervisor stays outside, where the command cannot
// signal or trace it.
func spawn(program string, j job, f *forks) (int, error) {
	type started struct {
		pid int
		err error
	}
	out := make(chan started, 1)
	// The names as the kernel tells them, for comparing.
	inside := []string{j.Tmp}
	if ws, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", workspaceFD)); err == nil {
		inside = append(inside, ws)
	}
	onOtherThread(func() {
		if j.Confine {
			listener, err := confine(j)
			if err != nil {
				out <- started{0, err}
				return
			}
			go serve(listener, inside, f)
		}
		pid, err := syscall.ForkExec(program, j.Argv, &syscall.ProcAttr{
			Env:   j.Env,
			Files: []uintptr{0, 1, 2},
			Sys:   &syscall.SysProcAttr{Setpgid: true},
		})
		if err != nil {
			err = &startError{j.Argv[0], err}
		}
		out <- started{pid, err}
	})
	s := <-out
	return s.pid, s.err
}

// onOtherThread runs f on a thread that ends with it and that is not the
// process's first one, by which other processes know it.
func onOtherThread(f func()) {
	var try func()
	try = func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		if unix.Gettid() == unix.Getpid() {
			done := make(chan struct{})
			go func() { defer close(done); try() }()
			<-done
			runtime.UnlockOSThread()
			return
		}
		f()
	}
	go try()
}

// tend waits for the command and for the end of the control pipe, whichever
// comes first, and then kills what is left of the tree.
func tend(pid int, control io.Reader, f *forks) result {
	var stopped atomic.Bool
	stop := make(chan struct{})
	go func() {
		// Nothing more is ever sent; the host closes its end or dies.
		_, _ = io.Copy(io.Discard, control)
		stopped.Store(true)
		close(stop)
	}()
	ended := make(chan result, 1)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			var ws unix.WaitStatus
			p, err := unix.Wait4(-1, &ws, unix.WALL, nil)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return // ECHILD: the tree is gone
			}
			if p != pid {
				continue
			}
			r := result{Stopped: stopped.Load(), Code: ws.ExitStatus()}
			if ws.Signaled() {
				r.Signal = int(ws.Signal())
				r.Code = 128 + r.Signal
			}
			ended <- r
		}
	}()
	var r result
	select {
	case r = <-ended:
	case <-stop:
	}
	f.stop()
	if !killTree(gone) {
		return result{Failed: "processes are left that could not be killed"}
	}
	select {
	case r = <-ended:
	default: // it had ended before
	}
	return r
}

// killTree kills every descendant until gone is closed or patience ends.
func killTree(gone <-chan struct{}) bool {
	deadline := time.Now().Add(killPatience)
	wait := 100 * time.Microsecond
	for {
		select {
		case <-gone:
			return true
		case <-time.After(wait):
		}
		if time.Now().After(deadline) {
			return false
		}
		killAll(descendants(os.Getpid()))
		wait = min(2*wait, 10*time.Millisecond)
	}
}
