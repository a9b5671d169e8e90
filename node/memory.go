package node

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
)

const (
	// memoryShare is the part of a container's memory that the Go heap may take, in
	// quarters: commands in sandboxes count too.
	memoryShare = 3
	// memoryHeap is up to how many bytes the heap grows in any case: garbage of half of what
	// a small node has in use is so little that collecting it was a quarter of the work.
	memoryHeap = 48 << 20
	// memoryGrowth is how much garbage there may be beyond it, in percent of what is in use:
	// Go's own 100 leaves what is kept for long, the subjects of streams above all, spread
	// over twice the memory. memoryGrowthMost is of a process that has hardly begun.
	memoryGrowth, memoryGrowthMost = 40, 400
	// memoryMost is what no container is limited to: some say so for "no limit".
	memoryMost = 1 << 50
)

// memoryUsage is what -help says of it.
const memoryUsage = `
GOGC and GOMEMLIMIT say how much memory garbage may take; without them it is
collected when the heap comes to 48 MiB or to 1.4 times what is in use, and near
three quarters of the memory of the container.
`

// TuneMemory sets, for this process, how much memory garbage may take, as Main does:
// collections come when the heap comes to 48 MiB or to 1.4 times what is in use, and more
// often near three quarters of the memory of the container. What GOGC or GOMEMLIMIT say in
// the environment holds instead. Programs that start nodes with Start may call it once,
// before.
func TuneMemory(env func(string) string) {
	if env("GOGC") == "" {
		growAfterCollections()
	}
	limitMemory(env, "/")
}

// limitMemory finds control groups below a root directory.
func limitMemory(env func(string) string, root string) {
	if limit := containerMemory(root); limit > 0 && env("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 4 * memoryShare)
	}
}

// growAfterCollections sets after each collection, until the process ends, how much the
// heap may grow before the next one.
var growAfterCollections = sync.OnceFunc(func() {
	type collected struct{ _ *byte }
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var next func()
	next = func() {
		runtime.AddCleanup(new(collected), func(struct{}) { // each collection finds one
			metrics.Read(live)
			debug.SetGCPercent(growthOver(live[0].Value.Uint64()))
			next()
		}, struct{}{})
	}
	next()
	runtime.GC()
})

// growthOver is how much a heap of which so many bytes are in use may grow, in percent.
func growthOver(live uint64) int {
	room := memoryHeap - int64(min(live, memoryHeap))
	return int(max(memoryGrowth, min(100*room/int64(max(live, 1)), memoryGrowthMost)))
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
