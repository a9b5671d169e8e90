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
	// memoryHeap is the size up to which the heap always grows, in bytes: on a small
	// node, collecting garbage of only half of the live heap was a quarter of the work.
	memoryHeap = 48 << 20
	// memoryGrowth is the garbage that may accumulate beyond memoryHeap, in percent of
	// the live heap. Go's default of 100 spreads long-lived data, above all the
	// subjects of streams, over twice the memory. memoryGrowthMost is for a process
	// that has just begun.
	memoryGrowth, memoryGrowthMost = 40, 400
	// memoryMost is above any real limit: some systems report such values for "no
	// limit".
	memoryMost = 1 << 50
)

// memoryUsage describes the settings in the output of -help.
const memoryUsage = `
GOGC and GOMEMLIMIT say how much memory garbage may take; without them it is
collected when the heap comes to 48 MiB or to 1.4 times what is in use, and near
three quarters of the memory of the container.
`

// TuneMemory sets how much memory garbage may take in this process, as Main does. The
// garbage collector runs when the heap reaches 48 MiB or 1.4 times the live heap, and
// more often near three quarters of the container's memory. GOGC and GOMEMLIMIT in the
// environment take precedence. Programs that start nodes with Start may call TuneMemory
// once, before.
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

// growthOver returns how much a heap with live bytes in use may grow, in percent.
func growthOver(live uint64) int {
	room := memoryHeap - int64(min(live, memoryHeap))
	return int(max(memoryGrowth, min(100*room/int64(max(live, 1)), memoryGrowthMost)))
}

// containerMemory returns the memory limit of this process's control groups, zero
// without one.
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
