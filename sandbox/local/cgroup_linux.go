package local

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rathcluster/rath/internal/sandbox/confinement"
	"github.com/rathcluster/rath/sandbox"
)

// Control groups, of version 1 or 2, enforce the limits of memory and processors, where
// this process may create them: as root, or below the group that a login was given.

// groupsFile is the file in a sandbox's folder that lists its groups.
const groupsFile = "cgroups"

// hierarchy is a place for groups of one or more controllers.
type hierarchy struct {
	dir  string // the parent of groups
	v2   bool
	does []string // the controllers that work there: memory, cpu, pids
}

// supervisorTasks exceeds the number of threads of a supervisor, which is in the group of
// version 2 of its command: only inner holds the command alone.
const supervisorTasks = 32

// inner is the threaded group, below a group of version 2, for the processes that the
// supervisor starts. A fork bomb in it leaves the supervisor its threads: if Go cannot
// create one, it ends the process. Memory is counted in the group above, as threaded groups
// cannot count it. If inner cannot be created, or another user may not enter it, the group
// above holds both.
const inner = "command"

// enforced returns the limits that these hierarchies enforce.
func enforced(hs []hierarchy) []string {
	limits := []string{sandbox.LimitDisk, sandbox.LimitPIDs}
	for _, h := range hs {
		for c, limit := range map[string]string{"memory": sandbox.LimitMemory, "cpu": sandbox.LimitCPU} {
			if slices.Contains(h.does, c) {
				limits = append(limits, limit)
			}
		}
	}
	slices.Sort(limits)
	return limits
}

// hierarchies returns the places where this process can create groups. It tries by creating
// one.
func hierarchies() []hierarchy {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var all []hierarchy
	missing := []string{"memory", "cpu", "pids"}
	for line := range strings.Lines(string(own)) {
		// "4:memory:/path" of version 1, "0::/path" of version 2
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		controllers := strings.Split(f[1], ",")
		mount, root := groupMount(mounts, f[1])
		rel, err := filepath.Rel(root, f[2])
		if mount == "" || err != nil || strings.HasPrefix(rel, "..") {
			continue
		}
		for at := filepath.Join(mount, rel); len(missing) > 0; at = filepath.Dir(at) {
			h := hierarchy{dir: at, v2: f[1] == ""}
			for _, c := range missing {
				if h.v2 || slices.Contains(controllers, c) {
					h.does = append(h.does, c)
				}
			}
			if h.probe(); len(h.does) > 0 {
				missing = slices.DeleteFunc(missing, func(c string) bool { return slices.Contains(h.does, c) })
				all = append(all, h)
				break
			}
			if at == mount {
				break
			}
		}
	}
	return all
}

// groupMount returns the mount point of a hierarchy, and the group that is mounted there.
func groupMount(mounts []byte, controllers string) (point, root string) {
	for line := range strings.Lines(string(mounts)) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		switch {
		case controllers == "" && g[0] == "cgroup2",
			controllers != "" && g[0] == "cgroup" && hasAll(strings.Split(g[2], ","), strings.Split(controllers, ",")):
			return f[4], f[3]
		}
	}
	return "", ""
}

func hasAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// probe reduces a hierarchy to the controllers for which a group can be created.
func (h *hierarchy) probe() {
	if h.v2 && unix.Geteuid() == 0 { // the root of the hierarchy does not delegate controllers by default
		for _, c := range h.does {
			_ = os.WriteFile(filepath.Join(h.dir, "cgroup.subtree_control"), []byte("+"+c), 0)
		}
	}
	dir, err := os.MkdirTemp(h.dir, "rath-probe-")
	if err != nil {
		h.does = nil
		return
	}
	h.does = slices.DeleteFunc(h.does, func(c string) bool {
		return unix.Access(filepath.Join(dir, h.limitFile(c)), unix.W_OK) != nil
	})
	if unix.Access(filepath.Join(h.dir, "cgroup.procs"), unix.W_OK) != nil {
		h.does = nil // moving processes out of that group requires it
	}
	if os.Remove(dir) != nil {
		h.does = nil
	}
}

// limitFile is the name of the file with the limit of a controller.
func (h *hierarchy) limitFile(controller string) string {
	switch {
	case controller == "memory" && h.v2:
		return "memory.max"
	case controller == "memory":
		return "memory.limit_in_bytes"
	case controller == "cpu" && h.v2:
		return "cpu.max"
	case controller == "cpu":
		return "cpu.cfs_quota_us"
	}
	return "pids.max"
}

// period is the time in which a quota of processors is counted.
const period = 100 * time.Millisecond

// groups are the groups of one sandbox.
type groups struct {
	dirs   []string // in the order of removal
	outer  []string // the groups of version 2, which the supervisor enters
	enter  []string // the files by which the thread that starts the command enters the other groups
	net    bool     // no limit was requested
	memory string   // the file with the count of kills for memory; "" without a limit
}

// openGroups creates the groups that the limits require, and in any case a group that
// bounds the number of tasks: a fork bomb is faster than a watch that shares the processors
// with it. If that group alone cannot be created, the watch must suffice. The list of
// groups is written to the folder own before they are created, so that Reap finds them.
func openGroups(own string, hs []hierarchy, l sandbox.Limits) (*groups, error) {
	asked := len(l.Asked()) > 0
	if l.PIDs == 0 {
		l.PIDs = MaxTasks
	}
	g, err := makeGroups(own, hs, l)
	switch {
	case err == nil:
		g.net = !asked
		return g, nil
	case asked:
		return nil, err
	}
	return &groups{}, nil
}

func makeGroups(own string, hs []hierarchy, l sandbox.Limits) (_ *groups, err error) {
	g := &groups{}
	values := map[string]string{"pids": strconv.Itoa(l.PIDs)}
	if l.Memory > 0 {
		values["memory"] = strconv.FormatInt(l.Memory, 10)
	}
	quota := int64(l.CPU * float64(period.Microseconds()))
	if l.CPU > 0 {
		values["cpu"] = fmt.Sprint(max(quota, 1000)) // the kernel's minimum
	}
	name := "rath-" + filepath.Base(own) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	var use []hierarchy
	for _, h := range hs {
		if slices.ContainsFunc(h.does, func(c string) bool { return values[c] != "" }) {
			use = append(use, h)
			dir := filepath.Join(h.dir, name)
			if h.v2 {
				g.dirs = append(g.dirs, filepath.Join(dir, inner))
				g.outer = append(g.outer, dir)
			} else {
				g.enter = append(g.enter, filepath.Join(dir, "tasks"))
			}
			g.dirs = append(g.dirs, dir)
		}
	}
	if len(use) == 0 {
		return g, nil
	}
	if err := os.WriteFile(filepath.Join(own, groupsFile), []byte(strings.Join(g.dirs, "\n")), 0o600); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close(context.Background()))
		}
	}()
	for _, h := range use {
		dir := filepath.Join(h.dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		write := func(file, value string) error { return os.WriteFile(filepath.Join(dir, file), []byte(value), 0) }
		for _, c := range h.does {
			value := values[c]
			switch {
			case value == "":
				continue
			case c == "pids" && h.v2:
				value = strconv.Itoa(l.PIDs + supervisorTasks)
			case c == "pids":
				value = strconv.Itoa(l.PIDs + 1) // the thread that starts the command
			case c == "cpu" && h.v2:
				value = fmt.Sprintf("%s %d", value, period.Microseconds())
			case c == "cpu":
				err = write("cpu.cfs_period_us", strconv.FormatInt(period.Microseconds(), 10))
			}
			if err = errors.Join(err, write(h.limitFile(c), value)); err != nil {
				return nil, err
			}
			if c != "memory" {
				continue
			}
			// Where the kernel counts swap, allow none.
			swap, none := "memory.memsw.limit_in_bytes", value
			g.memory = filepath.Join(dir, "memory.oom_control")
			if h.v2 {
				swap, none = "memory.swap.max", "0"
				g.memory = filepath.Join(dir, "memory.events")
			}
			if err := write(swap, none); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
		if h.v2 && slices.Contains(h.does, "pids") && makeInner(dir, l.PIDs) == nil {
			g.enter = append(g.enter, filepath.Join(dir, inner, "cgroup.threads"))
		}
	}
	return g, nil
}

// makeInner creates the threaded group below a group of version 2.
func makeInner(dir string, tasks int) error {
	below := filepath.Join(dir, inner)
	if err := os.Mkdir(below, 0o755); err != nil {
		return err
	}
	for _, w := range []struct{ file, value string }{
		{filepath.Join(below, "cgroup.type"), "threaded"},
		{filepath.Join(dir, "cgroup.subtree_control"), "+pids"},
		{filepath.Join(below, "pids.max"), strconv.Itoa(tasks + 1)}, // the thread that starts the command
	} {
		if err := os.WriteFile(w.file, []byte(w.value), 0); err != nil {
			return errors.Join(err, os.Remove(below))
		}
	}
	return nil
}

// hold moves a supervisor, with its future children, into the groups of version 2. Only its
// children enter the other groups, see confinement.Job, so that a fork bomb there does not
// use the supervisor's share.
func (g *groups) hold(pid int) error {
	if g == nil {
		return nil
	}
	for _, dir := range g.outer {
		err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		if err != nil && (!g.net || errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// spare protects a supervisor from the memory killer. The supervisor is in the groups of
// version 2 beside its command: if memory runs out again before the first victim has
// released its memory, the supervisor would be the only victim left. spare needs
// CAP_SYS_RESOURCE; a confined command cannot protect itself.
func (g *groups) spare(pid int) {
	if filepath.Base(g.memory) == "memory.events" {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("-1000"), 0)
	}
}

// kill kills all processes in the groups, faster than they can start others: where a group
// bounds the number of tasks, no task can start meanwhile.
func (g *groups) kill(ctx context.Context) error {
	for _, dir := range g.dirs {
		file := filepath.Join(dir, "pids.max")
		limit, err := os.ReadFile(file)
		if err != nil || os.WriteFile(file, []byte("0"), 0) != nil {
			continue
		}
		// The sandbox may continue to run.
		defer os.WriteFile(file, bytes.TrimSpace(limit), 0) //nolint:errcheck // it is gone
	}
	deadline := time.Now().Add(confinement.Patience)
	for _, dir := range g.dirs {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) // version 2, since Linux 5.14
		for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
			members, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			if err != nil || len(members) == 0 {
				break
			}
			for line := range strings.Lines(string(members)) {
				if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
					killMember(pid, filepath.Base(dir))
				}
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("what is in the control group %s does not die", dir)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait):
			}
		}
	}
	return nil
}

// killMember kills a process that is in a group. It opens a handle first, so the number
// cannot be reused in between.
func killMember(pid int, group string) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err == nil && (strings.Contains(string(data), "/"+group+"\n") || strings.Contains(string(data), "/"+group+"/"+inner+"\n")) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// killed returns the number of kills for memory.
func (g *groups) killed() int {
	if g.memory == "" {
		return 0
	}
	data, err := os.ReadFile(g.memory)
	if err != nil {
		return 0
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		var n int
		if k, _ := fmt.Sscanf(lines.Text(), "oom_kill %d", &n); k == 1 {
			return n
		}
	}
	return 0
}

// close removes the groups. Their processes have ended; the kernel needs a moment to
// notice.
func (g *groups) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	for _, dir := range g.dirs {
		for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
			err := os.Remove(dir)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if !errors.Is(err, unix.EBUSY) {
				return err
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(wait):
			}
		}
	}
	return nil
}

// leftGroups returns the groups that a folder lists.
func leftGroups(own string) (*groups, error) {
	data, err := os.ReadFile(filepath.Join(own, groupsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &groups{}, nil
	}
	return &groups{dirs: strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })}, err
}
