package node

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// memoryShare is the part of a container's memory that the Go heap may take, in
	// quarters: commands in sandboxes count too.
	memoryShare = 3
	// memoryGrowth is how much garbage there may be, in percent of what is in use, before
	// it is collected: Go's own 100 leaves what is kept for long, the subjects of streams
	// above all, spread over twice the memory.
	memoryGrowth = 50
	// memoryMost is what no container is limited to: some say so for "no limit".
	memoryMost = 1 << 50
)

// memoryUsage is what -help says of it.
const memoryUsage = `
GOGC and GOMEMLIMIT say how much memory garbage may take; without them it is
collected at 50 percent of what is in use, and near three quarters of the memory
of the container.
`

// TuneMemory sets, for this process, how much memory garbage may take, as Main does:
// collections come at 50 percent of what is in use, and more often near three quarters
// of the memory of the container. What GOGC or GOMEMLIMIT say in the environment holds
// instead. Programs that start nodes with Start may call it once, before.
func TuneMemory(env func(string) string) { tuneMemory(env, "/") }

// tuneMemory finds control groups below a root directory.
func tuneMemory(env func(string) string, root string) {
	if env("GOGC") == "" {
		debug.SetGCPercent(memoryGrowth)
	}
	if limit := containerMemory(root); limit > 0 && env("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 4 * memoryShare)
	}
}

// containerMemory returns how much memory the control groups of this process leave it,
// zero if they say nothing.
func containerMemory(root string) int64 {
	groups := filepath.Join(root, "sys/fs/cgroup")
	files := []string{filepath.Join(groups, "memory/memory.limit_in_bytes"), filepath.Join(groups, "memory.max")}
	if own, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup")); err == nil {
		for line := range strings.Lines(string(own)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				files = append(files, filepath.Join(groups, filepath.Clean("/"+path), "memory.max"))
			}
		}
	}
	least := int64(0)
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // another version of control groups, or none
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err == nil && n > 0 && n < memoryMost && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}
