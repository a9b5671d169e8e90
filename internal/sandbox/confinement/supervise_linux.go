package confinement

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/sandbox/proc"
)

// Name is the argv[0] under which this binary is a supervisor.
const Name = "rath-sandbox-supervisor"

// The files of a new supervisor, in addition to its standard files.
const (
	controlFD   = 3 + iota // see Order; its end means stop
	workspaceFD            // the workspace directory
	runsFD                 // append-only list of supervisors
)

// Limits of a command that every kernel enforces.
const (
	maxOpenFiles = 4096
	startFiles   = 1024
)

// A command without an idle supervisor starts one. Initializing the rest of the program
// would be wasted there: in a large program it takes most of the time of a command. No
// package outside this one's imports is initialized yet.
func init() {
	if len(os.Args) != 1 || os.Args[0] != Name {
		return
	}
	go supervise()
	select {} // while packages are initialised this goroutine has a thread of its own
}

// supervise is the main loop of a supervisor. It runs one command after the other, each
// with its process tree, until its host is gone.
func supervise() {
	prepared := prepare()
	jobs := make(chan *assignment, 1)
	go assignments(jobs)
	var d duty
	for a := range jobs {
		var r Result
		if prepared != nil {
			r.Failed = prepared.Error()
		} else {
			r = d.perform(a)
		}
		for _, fd := range a.files { // the files that it did not use
			if fd >= 0 {
				unix.Close(fd)
			}
		}
		// A host that cannot be reached sees a supervisor without a result. A supervisor
		// that failed may have left processes or state, so it accepts no further job.
		if err := Report(r); err != nil || r.Failed != "" {
			syscall.Exit(1)
		}
	}
	syscall.Exit(0) // not os.Exit, which may run hooks of the host program
}

// prepare sets up the supervisor process once.
func prepare() error {
	if err := CloseOnExec(3); err != nil {
		return fmt.Errorf("close files: %w", err)
	}
	// A process that a command detaches becomes this process's child instead of init's.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	if err := limitResources(); err != nil {
		return fmt.Errorf("set resource limits: %w", err)
	}
	syscall.Umask(0o022)
	return nil
}

// oomScore is the file with the memory killer's bias for this process.
const oomScore = "/proc/self/oom_score_adj"

// duty is the state that a supervisor keeps between commands.
type duty struct {
	recorded bool // in the sandbox's folder
	rules    ruleset
}

// perform runs the command of a job. It closes the job's files that it used.
func (d *duty) perform(a *assignment) (r Result) {
	fail := func(what string, err error) Result { return Result{Failed: fmt.Sprintf("%s: %v", what, err)} }
	j := a.job
	if j.Probe != "" {
		return probe(j)
	}
	if j.Port != 0 {
		return connect(j.Port)
	}
	// Reap removes the folder of a superseded holder.
	tmp, err := unix.Open(j.Tmp, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail("the sandbox was taken away", err)
	}
	defer unix.Close(tmp)
	if !d.recorded {
		if err := recordRun(os.Getpid()); err != nil {
			return fail("record the supervisor", err)
		}
		d.recorded = true
	}
	if err := a.enter(); err != nil {
		return fail("take the command's files", err)
	}
	// Its pipes end with the command.
	defer func() {
		if err := detachStdio(); err != nil {
			r = fail("detach standard files", err)
		}
	}()

	program, err := lookPath(j.Argv[0], j.Env)
	if err != nil {
		return Result{Refused: err.Error()}
	}
	// Make the kernel's memory killer prefer the command, from its start, to its host and
	// to this process. Best effort: the score affects the order of victims, not the
	// command's rights. In a pod the processes start with nearly the same score.
	own, _ := os.ReadFile(oomScore)
	_ = os.WriteFile(oomScore, []byte("1000"), 0)
	pid, err := spawn(program, j, &d.rules)
	_ = os.WriteFile(oomScore, own, 0)
	if refused, ok := errors.AsType[*startError](err); ok {
		return Result{Refused: refused.Error()}
	}
	if err != nil {
		return fail("confine the command", err)
	}
	if err := recordRun(pid); err != nil {
		unix.Kill(pid, unix.SIGKILL)
		return fail("record the command", err)
	}
	if err := detachStdio(); err != nil {
		unix.Kill(pid, unix.SIGKILL)
		return fail("detach standard files", err)
	}
	var watches sync.WaitGroup
	done := make(chan struct{})
	unwatch := sync.OnceFunc(func() {
		close(done)
		watches.Wait()
	})
	defer unwatch()
	bomb, full := make(chan string, 1), make(chan string, 1)
	watches.Go(func() { watch(bomb, done, j.Tasks) })
	if j.Disk == 0 {
		return tend(pid, a.stop, bomb, full)
	}
	held := &disk{limit: mostUse(j.Disk), held: j.Held, dirs: []int{workspaceFD, tmp}, confined: j.Confine}
	watches.Go(func() { held.watch(full, done) })
	r = tend(pid, a.stop, bomb, full)
	unwatch() // two concurrent scans could need more files than this process may open
	held.end(&r)
	return r
}

// enter makes the job's files this process's own.
func (a *assignment) enter() error {
	if len(a.files) != 4 {
		return fmt.Errorf("%d files came with the command", len(a.files))
	}
	if err := unix.Fchdir(a.files[3]); err != nil {
		return fmt.Errorf("enter the directory: %w", err)
	}
	for fd, from := range a.files[:3] {
		if err := unix.Dup3(from, fd, 0); err != nil {
			return err
		}
	}
	for i, fd := range a.files {
		unix.Close(fd)
		a.files[i] = -1
	}
	return nil
}

// recordRun records a process in the sandbox's folder, for Reap. A process that has ended
// already needs no record.
func recordRun(pid int) error {
	started, ok := proc.Started(pid)
	if !ok {
		return nil
	}
	_, err := unix.Write(runsFD, fmt.Appendf(nil, "%d %d\n", pid, started))
	return err
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
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(hard, startFiles), Max: hard}); err != nil {
		return err
	}
	// The kernel counts all tasks of this user, and does not limit root: see watch.
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &have); err != nil {
		return err
	}
	most := min(have.Max, 2*MaxTasks)
	return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: most, Max: most})
}

// CloseOnExec hides every file from first on from the command, including files that the
// host inherited from its own parent.
func CloseOnExec(first uint) error {
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

// detachStdio releases the command's pipes, so that they end with the command.
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

// startError is the reason why a program could not be started.
type startError struct {
	program string
	err     error
}

func (e *startError) Error() string {
	return fmt.Sprintf("cannot start %q: %v", e.program, e.err)
}

// lookPath finds a program in the PATH of the command's environment. A name with a slash is
// used as it is, relative to the command's directory.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, v := range env {
		list, ok := strings.CutPrefix(v, "PATH=")
		if !ok || list == "" {
			continue
		}
		for dir := range strings.SplitSeq(list, ":") {
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

// spawn starts the program. Confinement is a property of a thread, which its children
// inherit, so only the thread that starts the command is confined. The supervisor stays
// unconfined, where the command cannot signal or trace it.
func spawn(program string, j Job, rules *ruleset) (int, error) {
	type started struct {
		pid int
		err error
	}
	out := make(chan started, 1)
	// The names as the kernel reports them, for comparison.
	inside := []string{j.Tmp}
	if ws, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", workspaceFD)); err == nil {
		inside = append(inside, ws)
	}
	onOtherThread(func() {
		if err := enterThread(j.Groups, j.Net); err != nil {
			out <- started{0, fmt.Errorf("limit it: %w", err)}
			return
		}
		if j.Confine {
			listener, err := confine(j, rules)
			if err != nil {
				out <- started{0, err}
				return
			}
			go serve(listener, inside)
		}
		pid, err := syscall.ForkExec(program, j.Argv, &syscall.ProcAttr{
			Env:   j.Env,
			Files: []uintptr{0, 1, 2},
			// A session of its own: its number marks the command's processes. Where the
			// kernel shares the processors by session, a fork bomb does not starve the
			// supervisor.
			Sys: &syscall.SysProcAttr{Setsid: true},
		})
		if err != nil {
			err = &startError{j.Argv[0], err}
		}
		out <- started{pid, err}
	})
	s := <-out
	return s.pid, s.err
}

// enterThread moves the calling thread and its future children into control groups. The
// supervisor of another user may not enter a group of version 2; there the group above
// limits both.
func enterThread(files []string, net bool) error {
	for _, file := range files {
		err := os.WriteFile(file, []byte("0"), 0)
		if errors.Is(err, fs.ErrPermission) && strings.HasSuffix(file, "/cgroup.threads") {
			continue
		}
		if err != nil && (!net || errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// onOtherThread runs f on a new thread that ends with f. The thread is never the process's
// first one, by which other processes identify the process.
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
