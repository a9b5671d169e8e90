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

// Limits of memory and processors are those of control groups, of version 1 or 2,
// wherever this process may make some: as root, or below what a login was given.

// groupsFile lists in a sandbox's folder the groups that it has.
const groupsFile = "cgroups"

// hierarchy is where groups for one or more controllers can be made.
type hierarchy struct {
	dir  string // the parent of groups
	v2   bool
	does []string // the controllers that work there: memory, cpu, pids
}

// supervisorTasks is more than the threads of a supervisor, which is in the group of version 2
// of its command: only inner holds the command alone.
const supervisorTasks = 32

// inner is the threaded group below one of version 2 for what the supervisor starts. What a
// bomb takes there leaves the supervisor its threads: where Go cannot make one, it ends the
// process. Memory is counted in the group above, which no threaded group can do. Where inner
// cannot be made, or another user may not enter it, the group above holds both.
const inner = "command"

// enforced are the limits that hold here.
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

// hierarchies finds where this process can make groups, by making one.
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

// groupMount finds where a hierarchy is mounted, and which of its groups lies there.
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

// probe leaves of what a hierarchy does that for which a group can be made.
func (h *hierarchy) probe() {
	if h.v2 && unix.Geteuid() == 0 { // the root of the hierarchy gives nothing on by itself
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
		h.does = nil // from there processes are moved
	}
	if os.Remove(dir) != nil {
		h.does = nil
	}
}

// limitFile is the file that holds the limit of a controller.
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
	dirs   []string // as they are removed
	outer  []string // those of version 2, which the supervisor enters
	enter  []string // the files by which the thread enters the others that starts the command
	net    bool     // no limit was asked for
	memory string   // the file that counts what was killed for memory; "" without a limit
}

// openGroups makes the groups that some limits need, and one that holds back fork bombs
// in any case: a bomb is faster than a watch that shares the processors with it. Where
// that one alone cannot be made the watch has to do. The list of them is in the folder
// own before they are made, so that Reap finds them.
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
		values["cpu"] = fmt.Sprint(max(quota, 1000)) // the kernel's least
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
			// Where the kernel counts swap, none of it.
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

// makeInner makes the threaded group below a group of version 2.
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

// hold puts a supervisor into the groups of version 2, and what it will start. Into the
// others goes what it starts alone, see confinement.Job: what a bomb takes of them is then
// not the supervisor's.
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

// spare has the memory killer take no supervisor, which is in the groups of version 2 beside
// its command: where memory runs out again before the first victim has given back its own,
// the supervisor would be what is left to take. It takes CAP_SYS_RESOURCE; a confined
// command cannot say it of itself.
func (g *groups) spare(pid int) {
	if filepath.Base(g.memory) == "memory.events" {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("-1000"), 0)
	}
}

// kill kills all that is in the groups, faster than it can start more: where a group
// bounds the number of tasks, none can be started meanwhile.
func (g *groups) kill(ctx context.Context) error {
	for _, dir := range g.dirs {
		file := filepath.Join(dir, "pids.max")
		limit, err := os.ReadFile(file)
		if err != nil || os.WriteFile(file, []byte("0"), 0) != nil {
			continue
		}
		// The sandbox may go on.
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

// killMember kills a process that is in a group. The handle is taken first, so the
// number cannot change hands in between.
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

// killed returns how often something was killed for memory.
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

// close removes the groups. The processes in them are gone; the kernel takes a moment to
// see it.
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

// leftGroups are those that a folder lists.
func leftGroups(own string) (*groups, error) {
	data, err := os.ReadFile(filepath.Join(own, groupsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &groups{}, nil
	}
	return &groups{dirs: strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })}, err
}
