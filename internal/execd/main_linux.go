package execd

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/sandbox/local"
)

// main is the life of a daemon: of the container's first process, or of its child.
func main(args []string) {
	var err error
	if len(args) > 0 && args[0] == serveRole {
		err = serveContainer()
	} else {
		err = wait()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, Name+":", err)
		syscall.Exit(1)
	}
	syscall.Exit(0)
}

// wait starts the daemon and waits for it, and for all that lost its parent.
func wait() error {
	p, err := os.StartProcess("/proc/self/exe", []string{Name, serveRole}, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
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
		case pid == p.Pid:
			return nil
		}
	}
}

// serveContainer is the daemon.
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

// imagePaths are what an image has besides what every command may read.
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

// oomKills returns how often a process of this container was killed for memory, by the
// counter of either version of control groups. Without one it is 0.
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

// peerUser returns whose process is at the other end.
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
