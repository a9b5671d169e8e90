//go:build cluster

package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// containerName is the argv[0] under which the test binary becomes a container.
const containerName = "rath-test-container"

// containerSpec is a container of the test's machine: a process with namespaces of its own
// for processes, mounts and IPC, a read-only root file system, no capability, and the
// control groups of its pod. It uses the network of the host, and is so less isolated than
// on a real machine; the restrictions of commands are the same.
type containerSpec struct {
	Root    string // an empty directory, for the root file system
	Program string // mounted at the path in Argv, if not ""
	Argv    []string
	Env     []string
	UID     int
	Mounts  []containerMount
	Groups  map[string]string // the container's path to the host's path
}

type containerMount struct {
	Source, Target string
	ReadOnly       bool
}

// command is the process that becomes the container.
func (c containerSpec) command() (*exec.Cmd, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{containerName, string(data)}, Env: []string{},
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC, Setsid: true},
	}, nil
}

// beContainer turns this process into a container, if it was started as one.
func beContainer() {
	if len(os.Args) != 2 || os.Args[0] != containerName {
		return
	}
	var c containerSpec
	err := json.Unmarshal([]byte(os.Args[1]), &c)
	if err == nil {
		err = c.run()
	}
	fmt.Fprintln(os.Stderr, "container:", err)
	os.Exit(128)
}

func (c containerSpec) run() error {
	for _, group := range c.Groups {
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0); err != nil {
			return err
		}
	}
	// The score that a kubelet sets for a container with small requests on a large machine.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("990"), 0); err != nil {
		return err
	}
	if err := c.mount(); err != nil {
		return err
	}
	if err := unix.Setgroups([]int{c.UID}); err != nil {
		return err
	}
	for n := range unix.CAP_LAST_CAP + 1 {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	if err := errors.Join(unix.Setresgid(c.UID, c.UID, c.UID), unix.Setresuid(c.UID, c.UID, c.UID)); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Exec(c.Argv[0], c.Argv, c.Env)
}

// mount creates the root file system: the programs of this machine, and the mounts.
func (c containerSpec) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("root", c.Root, "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		return err
	}
	bind := func(source, target string, readOnly bool) error {
		at := filepath.Join(c.Root, target)
		fi, err := os.Stat(source)
		if err != nil {
			return err
		}
		if fi.IsDir() {
			err = os.MkdirAll(at, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(at), 0o755); err == nil {
			err = os.WriteFile(at, nil, 0o644)
		}
		if err != nil {
			return err
		}
		if err := unix.Mount(source, at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
		if readOnly {
			err = unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID, "")
		}
		return err
	}
	for _, name := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		if to, err := os.Readlink(name); err == nil {
			if err := os.Symlink(to, filepath.Join(c.Root, name)); err != nil {
				return err
			}
		}
	}
	mounts := []containerMount{{"/usr", "/usr", true}, {"/etc", "/etc", true}}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		mounts = append(mounts, containerMount{"/dev/" + name, "/dev/" + name, false})
	}
	if c.Program != "" {
		mounts = append(mounts, containerMount{c.Program, c.Argv[0], true})
	}
	for target, group := range c.Groups {
		mounts = append(mounts, containerMount{group, target, true})
	}
	for _, m := range append(mounts, c.Mounts...) {
		if err := bind(m.Source, m.Target, m.ReadOnly); err != nil {
			return err
		}
	}
	proc := filepath.Join(c.Root, "proc")
	if err := errors.Join(os.Mkdir(proc, 0o555), os.MkdirAll(filepath.Join(c.Root, "tmp"), 0o755)); err != nil {
		return err
	}
	if err := unix.Mount("proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := os.Chdir(c.Root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID, "")
}

// groups are the control groups of one container, of version 1 or 2.
type groups struct {
	inside map[string]string // see containerSpec
	memory string            // the group that counts memory
	v2     bool
}

const groupRoot = "/sys/fs/cgroup"

// newGroups creates control groups with limits; 0 is none.
func newGroups(name string, memory int64, milliCPU int64) (*groups, error) {
	g := &groups{inside: map[string]string{}}
	write := func(dir, file, value string) error {
		return os.WriteFile(filepath.Join(dir, file), []byte(value), 0)
	}
	const period = 100_000
	if _, err := os.Stat(filepath.Join(groupRoot, "cgroup.controllers")); err == nil {
		g.v2, g.memory = true, filepath.Join(groupRoot, name)
		g.inside[groupRoot] = g.memory
		if err := errors.Join(write(groupRoot, "cgroup.subtree_control", "+memory +cpu"), os.Mkdir(g.memory, 0o755)); err != nil {
			return nil, err
		}
		if memory > 0 {
			err = errors.Join(write(g.memory, "memory.max", strconv.FormatInt(memory, 10)), write(g.memory, "memory.swap.max", "0"))
		}
		if milliCPU > 0 {
			err = errors.Join(err, write(g.memory, "cpu.max", fmt.Sprintf("%d %d", milliCPU*period/1000, period)))
		}
		return g, err
	}
	var err error
	for _, controller := range []string{"memory", "cpu"} {
		at := filepath.Join(groupRoot, controller)
		g.inside[at] = filepath.Join(at, name)
		err = errors.Join(err, os.Mkdir(g.inside[at], 0o755))
	}
	g.memory = filepath.Join(groupRoot, "memory", name)
	if memory > 0 {
		err = errors.Join(err, write(g.memory, "memory.limit_in_bytes", strconv.FormatInt(memory, 10)))
	}
	if milliCPU > 0 {
		cpu := filepath.Join(groupRoot, "cpu", name)
		err = errors.Join(err, write(cpu, "cpu.cfs_period_us", strconv.Itoa(period)), write(cpu, "cpu.cfs_quota_us", strconv.FormatInt(milliCPU*period/1000, 10)))
	}
	return g, err
}

// killed reports whether a process was killed for memory.
func (g *groups) killed() bool {
	name := "memory.oom_control"
	if g.v2 {
		name = "memory.events"
	}
	data, err := os.ReadFile(filepath.Join(g.memory, name))
	return err == nil && strings.Contains(string(data), "oom_kill ") && !strings.Contains(string(data), "oom_kill 0")
}

// remove removes the groups; their processes have ended.
func (g *groups) remove() error {
	var errs []error
	for _, dir := range g.inside {
		errs = append(errs, os.Remove(dir))
	}
	return errors.Join(errs...)
}
