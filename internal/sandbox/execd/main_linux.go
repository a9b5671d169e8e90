package execd

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/sandbox/local"
)

// main runs a daemon: the container's first process, or its child.
func main(args []string) {
	var err error
	switch role := append(args, "")[0]; role {
	case serveRole:
		err = serveContainer()
	case podRole:
		stay(role)
		err = waitPod(servePodRole)
	case upgradeRole:
		stay(role)
		err = waitPod(serveUpgradeRole)
	case serveUpgradeRole:
		err = serveUpgraded(os.NewFile(3, "keys"))
	case servePodRole:
		err = servePod(os.NewFile(3, "keys"))
	default:
		if err = wait(serveRole); errors.Is(err, errMemory) {
			err = errors.Join(err, os.WriteFile(filepath.Join(SocketDir, memoryFile), nil, 0o644))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, Name+":", err)
		syscall.Exit(1)
	}
	syscall.Exit(0)
}

// errMemory means that the memory killer killed the daemon. The killer kills the command
// first, and may select another process while the command releases its memory. The kernel
// exposes only the number of kills since the container started, not their victims. So a
// daemon that ended by another SIGKILL after a command was killed for memory is reported as
// this, too.
var errMemory = errors.New("the memory ran out, and the daemon ended with it")

// wait starts the daemon with more files, waits for it, and reaps orphaned processes.
func wait(role string, more ...*os.File) error {
	p, err := os.StartProcess("/proc/self/exe", []string{Name, role}, &os.ProcAttr{
		Env: os.Environ(), Files: append([]*os.File{os.Stdin, os.Stdout, os.Stderr}, more...),
	})
	for _, f := range more {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return err
	}
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case pid == p.Pid && ws.Signaled() && ws.Signal() == unix.SIGKILL && oomKills() > 0:
			return errMemory
		case pid == p.Pid && ws.ExitStatus() != 0:
			return errors.New("the daemon ended")
		case pid == p.Pid:
			return nil
		}
	}
}

// install copies this program into a directory, from which the daemon is started, and
// creates the workspace in its volume, so that it belongs to the user of the pod.
func install(dir, volume string) error {
	if err := os.Mkdir(filepath.Join(volume, WorkspacePath), 0o755); err != nil {
		return err
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	out, err := os.OpenFile(filepath.Join(dir, Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o555)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, self)
	return errors.Join(err, out.Close())
}

// stay re-executes this program from memory that the system cannot reclaim, if a limit of
// memory applies. The pages of a file are charged to the control group of the sandbox that
// read it first. A command that uses all memory makes the system drop these pages, and the
// daemon, which needs them to run, read them again, as long as the system finds a page to
// drop: up to a minute, in which the holder gets no message. Or the daemon requests a page,
// and the killer selects it, while the command that it has just killed still exists.
// [Overhead] includes this memory.
//
// Without such a limit, or where no file in memory can be executed, stay has no effect.
func stay(role string) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return
	}
	defer self.Close()
	fi, err := self.Stat()
	if limit := memoryLimit(); err != nil || limit == 0 || limit < 2*fi.Size() {
		return
	}
	if name, err := os.Readlink("/proc/self/exe"); err != nil || strings.HasPrefix(name, "/memfd:") {
		return
	}
	fd, err := unix.MemfdCreate(Name, unix.MFD_CLOEXEC)
	if err != nil {
		return
	}
	memory := os.NewFile(uintptr(fd), Name)
	defer memory.Close()
	if _, err := io.Copy(memory, self); err != nil {
		return
	}
	// It returns only if it fails.
	err = syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", fd), []string{Name, role}, os.Environ())
	fmt.Fprintf(os.Stderr, "%s: the program cannot stay in memory: %v\n", Name, err)
}

// noMemoryLimit is below the value that control groups of version 1 report without a limit.
const noMemoryLimit = 1 << 50

// memoryLimit returns the limit of memory of the processes of this container, by either
// version of control groups; 0 is no limit.
func memoryLimit() int64 {
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && n < noMemoryLimit {
			return n
		}
	}
	return 0
}

// serveContainer runs the daemon of a container.
func serveContainer() error {
	local.Reexec() // it starts this binary again
	if err := os.MkdirAll(StateDir, 0o711); err != nil {
		return err
	}
	d := &server{
		socketDir: SocketDir, state: StateDir, workspace: Workspace, path: os.Getenv("PATH"),
		env: imageEnv(os.Environ()), readOnly: imagePaths("/"), oomKills: oomKills,
	}
	return d.serve(DefaultLease)
}

// waitPod runs the first process of a pod. Its environment has the keys, so other processes
// must not be able to inspect it.
func waitPod(role string) error {
	if err := dumpable(false); err != nil {
		return err
	}
	keys := os.Getenv(KeysVariable)
	if err := os.Unsetenv(KeysVariable); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.WriteString(w, keys) // a daemon without them reports that
		w.Close()
	}()
	return wait(role, r)
}

// servePod runs the daemon of a pod, where all processes have one user.
func servePod(keys *os.File) error {
	if err := dumpable(false); err != nil {
		return err
	}
	local.Reexec() // it starts this binary again
	text, err := readKeys(keys)
	if err != nil {
		return err
	}
	// Volumes belong to another user, and directories below them to this one.
	state := filepath.Join(StateDir, "own")
	if err := os.Mkdir(state, 0o700); err != nil {
		return err
	}
	l, err := ListenPod(os.Getenv(AddressVariable), text)
	if err != nil {
		return err
	}
	d := &server{
		state: state, workspace: Workspace, path: os.Getenv("PATH"), env: imageEnv(os.Environ()), readOnly: imagePaths("/"),
		oomKills: oomKills, carriers: make(chan *stream, mostCarriers), dumpable: dumpable,
	}
	return d.accept(l, DefaultLease)
}

func readKeys(keys *os.File) ([]byte, error) {
	text, err := io.ReadAll(keys)
	return text, errors.Join(err, keys.Close())
}

// serveUpgraded runs the daemon in a sandbox of a service, where all processes of this
// program have one user, too.
func serveUpgraded(keys *os.File) error {
	if err := dumpable(false); err != nil {
		return err
	}
	local.Reexec() // it starts this binary again
	text, err := readKeys(keys)
	if err != nil {
		return err
	}
	config, err := daemonEnd(text)
	if err != nil {
		return err
	}
	dir := os.Getenv(DirVariable)
	if err := os.Unsetenv(DirVariable); err != nil {
		return err
	}
	state, workspace := filepath.Join(dir, "state"), filepath.Join(dir, WorkspaceName)
	if err := errors.Join(os.Mkdir(state, 0o711), os.Mkdir(workspace, 0o700), os.Chmod(dir, 0o711)); err != nil {
		return err
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return err
	}
	d := &server{
		state: state, workspace: workspace, path: os.Getenv("PATH"),
		env: imageEnv(os.Environ()), readOnly: imagePaths("/"), oomKills: oomKills,
		carriers: make(chan *stream, mostCarriers), dumpable: dumpable,
	}
	fmt.Printf("%s%d\n", PortLine, l.Addr().(*net.TCPAddr).Port)
	return d.accept(listenUpgraded(l, config), DefaultLease)
}

// dumpable sets whether another process of this user may inspect this one.
func dumpable(may bool) error {
	var v uintptr
	if may {
		v = 1
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, v, 0, 0, 0)
}

// imagePaths returns the top-level directories of an image that commands may read in
// addition to the default ones.
func imagePaths(root string) []string {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	not := []string{"proc", "sys", "dev", "run", "tmp", "root", "home", "etc", "var", filepath.Base(Workspace)}
	var paths []string
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(not, e.Name()) {
			paths = append(paths, filepath.Join(root, e.Name()))
		}
	}
	return paths
}

// oomKills returns how many processes of this container were killed for memory, by the
// counter of either version of control groups; 0 without a counter.
func oomKills() int {
	for _, name := range []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"} {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		for lines.Scan() {
			var n int
			if k, _ := fmt.Sscanf(lines.Text(), "oom_kill %d", &n); k == 1 {
				return n
			}
		}
	}
	return 0
}

// peerUser returns the user of the process at the other end.
func peerUser(c net.Conn) (uid int, ok bool) {
	u, isUnix := c.(*net.UnixConn)
	if !isUnix {
		return 0, false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, false
	}
	var cred *unix.Ucred
	if raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return 0, false
	}
	return int(cred.Uid), true
}
