package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/sandbox/confinement"
	"github.com/rathcluster/rath/internal/sandbox/loopback"
	"github.com/rathcluster/rath/sandbox"
)

// wholeTree: the supervisor is the reaper of everything its command starts.
const wholeTree = true

// baseEnv returns the environment variables of every command.
func baseEnv(b *box) map[string]string {
	env := map[string]string{"PATH": b.o.Path, "HOME": b.dir, "LANG": "C.UTF-8", "TMPDIR": b.tmp}
	if b.info.Isolation == sandbox.IsolationKernel {
		// git fails on a configuration file that it may not read; the system's may hold
		// credentials.
		env["GIT_CONFIG_NOSYSTEM"] = "1"
	}
	if b.proxy != nil {
		maps.Copy(env, loopback.Environment(b.proxy.authority))
	}
	return env
}

// fits returns an error if the kernel would reject arguments and variables of this size:
// each may take 32 pages, and all of them with their pointers a quarter of the stack, at
// least 128 KiB and at most 6 MiB.
func fits(argv, env []string) error {
	var stack unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_STACK, &stack); err != nil {
		return err
	}
	most, all, longest := max(min(6<<20, stack.Cur/4), 128<<10), uint64(0), 0
	for _, list := range [][]string{argv, env} {
		for _, s := range list {
			all += uint64(len(s)) + 1 + 8
			longest = max(longest, len(s)+1)
		}
	}
	if all > most || longest > 32*os.Getpagesize() {
		return unix.E2BIG
	}
	return nil
}

// supervisor is the host's view of a started supervisor. It runs one command at a time, and
// then waits for the next command of its sandbox.
type supervisor struct {
	kill    func()        // kills the process at once
	wait    func() error  // waits for its end, if this process started it
	control *net.UnixConn // its end means stop; the kernel ends it if the host dies
	own     string        // the folder of the sandbox; "" for a probe
	rest    func(*supervisor) bool
	dead    chan struct{} // closed when the process has ended

	mu  sync.Mutex // guards the fields below, and sending
	n   int        // of runs
	now *run       // nil when idle
}

// run is one command of a supervisor.
type run struct {
	s    *supervisor
	n    int
	gone chan struct{}
	res  confinement.Result
	err  error
}

// standby is the set of idle supervisors of a sandbox. Starting a supervisor takes longer
// than most commands.
type standby struct {
	mu     sync.Mutex
	closed bool
	list   []*supervisor
}

// mostStandby is the maximum number of idle supervisors: commands of a sandbox mostly run
// one by one.
const mostStandby = 1

// add keeps an idle supervisor. It reports false if there is no room for it.
func (y *standby) add(s *supervisor) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.closed || len(y.list) == mostStandby {
		return false
	}
	y.list = append(y.list, s)
	return true
}

// take returns a live supervisor, or nil.
func (y *standby) take() *supervisor {
	y.mu.Lock()
	defer y.mu.Unlock()
	for len(y.list) > 0 {
		s := y.list[len(y.list)-1]
		y.list = y.list[:len(y.list)-1]
		select {
		case <-s.dead:
		default:
			return s
		}
	}
	return nil
}

// close ends the idle supervisors, and waits for them.
func (y *standby) close() {
	y.mu.Lock()
	y.closed = true
	list := y.list
	y.list = nil
	y.mu.Unlock()
	for _, s := range list {
		s.dismiss()
	}
	for _, s := range list {
		<-s.dead
	}
}

// start implements the platform's part of Exec.
func (b *box) start(c command) (process, error) {
	j := confinement.Job{
		Argv: c.argv, Env: c.env, Tmp: b.tmp, ABI: b.o.abi, ReadOnly: b.o.ReadOnly, Tasks: cmp.Or(b.most.PIDs, MaxTasks), Disk: b.most.Disk, Held: *b.held.Load(),
		Groups: b.groups.enter, Net: b.groups.net,
		Confine: b.info.Isolation == sandbox.IsolationKernel,
	}
	j.Network, j.Port = b.proxy != nil || b.info.Services, c.port
	if b.proxy != nil {
		j.ReadOnly = append(slices.Clip(j.ReadOnly), b.proxy.authority)
	}
	files := []*os.File{c.stdin, c.stdout, c.stderr, c.cwd}
	if s := b.ready.take(); s != nil {
		if r, err := s.begin(j, files); err == nil {
			return r, nil
		}
		s.dismiss() // it has just died
	}
	dir, err := b.files.Sub("")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	s, err := launch(b.o, b.network, b.own, b.groups, []*os.File{dir, b.runs}, b.ready.add)
	if err != nil {
		return nil, err
	}
	r, err := s.begin(j, files)
	if err != nil {
		s.dismiss()
		return nil, err
	}
	return r, nil
}

// launch starts a supervisor of the sandbox with the folder own, as the user of its
// options, in its groups and, if there is one, in its network. more are its files from
// workspaceFD on. After each command rest reports whether the supervisor waits for another
// one.
func launch(o Options, network *namespace, own string, g *groups, more []*os.File, rest func(*supervisor) bool) (*supervisor, error) {
	theirs, ours, err := controlPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	s := &supervisor{control: ours, own: own, rest: rest, dead: make(chan struct{})}
	pid, err := s.start(o, network, append([]*os.File{theirs}, more...))
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	if err := g.hold(pid); err != nil { // it waits for its job
		ours.Close()
		if errors.Is(err, fs.ErrNotExist) { // Reap removes the groups of a superseded holder
			err = fmt.Errorf("%w: the sandbox was taken away: %w", sandbox.ErrLost, err)
		}
		s.kill()
		_ = s.wait() // reports that it was killed
		return nil, fmt.Errorf("limit the command: %w", err)
	}
	if g != nil {
		g.spare(pid)
	}
	go s.watch()
	return s, nil
}

// start starts the process of a supervisor.
func (s *supervisor) start(o Options, network *namespace, files []*os.File) (pid int, err error) {
	if network != nil {
		pid, err = network.start(o, files)
		s.kill, s.wait = func() { network.kill(pid) }, func() error { return nil }
		return pid, err
	}
	cmd := reexecAs(o.UID, o.GID, files)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	s.kill, s.wait = func() { _ = cmd.Process.Kill() }, cmd.Wait
	return cmd.Process.Pid, nil
}

// controlPair returns the two ends of a control socket: the end of a process to start, and
// ours.
func controlPair() (theirs *os.File, ours *net.UnixConn, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs, end := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	conn, err := net.FileConn(end)
	end.Close()
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return theirs, conn.(*net.UnixConn), nil
}

// reexec returns the command that starts this program as a supervisor, or in the role of
// args.
func reexec(args []string, files []*os.File) *exec.Cmd {
	return &exec.Cmd{
		Path: "/proc/self/exe", // also when the file was replaced since
		Args: append([]string{confinement.Name}, args...),
		// No variable of the host. The collector runs only during a long command: a
		// supervisor uses little memory.
		Env:        []string{"GOGC=off", "GOMEMLIMIT=24MiB", "GOTRACEBACK=single"},
		ExtraFiles: files,
		// Its own session: no terminal, and not in the host's process group.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
}

// reexecAs returns a supervisor that runs, with its commands, as a user; 0 is the user of
// this process.
func reexecAs(uid, gid int, files []*os.File) *exec.Cmd {
	cmd := reexec(nil, files)
	if uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return cmd
}

// begin sends a job with its files.
func (s *supervisor) begin(j confinement.Job, files []*os.File) (*run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	r := &run{s: s, n: s.n, gone: make(chan struct{})}
	if err := give(s.control, confinement.Order{N: r.n, Job: &j}, files); err != nil {
		return nil, fmt.Errorf("hand over the command: %w", err)
	}
	s.now = r
	return r, nil
}

// take removes and returns the running command.
func (s *supervisor) take() *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.now
	s.now = nil
	return r
}

// watch receives the result of each command until the supervisor ends.
func (s *supervisor) watch() {
	defer close(s.dead)
	var failed string
	var heard error
	for {
		res, err := confinement.Hear(s.control)
		if err != nil {
			heard = err
			break
		}
		if failed = res.Failed; failed != "" {
			continue // it is ending now
		}
		r := s.take()
		if r == nil {
			continue
		}
		r.res = res
		if !s.rest(s) {
			s.dismiss()
		}
		close(r.gone)
	}
	waited := s.wait()
	s.dismiss()
	r := s.take()
	if r == nil {
		return
	}
	if failed != "" {
		r.err = fmt.Errorf("the supervisor could not do its part: %s", failed)
	} else {
		r.err = fmt.Errorf("the supervisor died: %w", errors.Join(heard, waited))
	}
	if s.own != "" {
		ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
		defer cancel()
		r.err = errors.Join(r.err, killLeft(ctx, s.own))
	}
	close(r.gone)
}

// dismiss ends a supervisor. It stops its command.
func (s *supervisor) dismiss() { s.control.Close() }

// stop implements process. A supervisor that cannot be reached is about to die.
func (r *run) stop() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	_ = give(r.s.control, confinement.Order{N: r.n}, nil)
}

// abandon kills the supervisor; watch then kills its remaining processes, where possible.
func (r *run) abandon() { r.s.kill() }

func (r *run) done() <-chan struct{} { return r.gone }

func (r *run) result() (confinement.Result, error) { return r.res, r.err }

// tryConfinement starts a supervisor that confines itself and attempts the operations that
// a command must not make. It returns a description of the confinement, or the reason why
// there is none.
func tryConfinement(ctx context.Context, o Options) (detail, why string, err error) {
	abi, err := confinement.ABI(o.abi)
	if err != nil {
		return "", fmt.Sprintf("no Landlock (%v)", err), nil
	}
	if !confinement.Filters {
		return "", "no seccomp filter for this processor", nil
	}
	dir, err := os.MkdirTemp("", "rath-probe-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir)
	canary, inside := filepath.Join(dir, "canary"), filepath.Join(dir, "inside")
	if err := errors.Join(os.WriteFile(canary, []byte("x"), 0o600), os.Mkdir(inside, 0o700)); err != nil {
		return "", "", err
	}
	ws, err := os.Open(inside)
	if err != nil {
		return "", "", err
	}
	defer ws.Close()
	r, err := ask(ctx, confinement.Job{Probe: canary, Tmp: inside, ABI: o.abi, ReadOnly: o.ReadOnly}, []*os.File{ws})
	if err != nil {
		return "", "", err
	}
	if r.Refused != "" {
		return "", r.Refused, nil
	}
	return fmt.Sprintf("landlock abi %d, seccomp, no network", abi), "", nil
}

// ask runs a job in a new supervisor.
func ask(ctx context.Context, j confinement.Job, more []*os.File) (confinement.Result, error) {
	s, err := launch(Options{}, nil, "", nil, more, func(*supervisor) bool { return false })
	if err != nil {
		return confinement.Result{}, err
	}
	defer s.dismiss()
	p, err := s.begin(j, nil)
	if err != nil {
		return confinement.Result{}, err
	}
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-p.done():
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errors.New("the supervisor does not answer")
	}
	if err != nil {
		p.abandon()
		<-p.done()
		return confinement.Result{}, err
	}
	return p.result()
}
