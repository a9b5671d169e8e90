package node

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestGrowth: a small heap grows to a fixed size, a large one by a share of the live
// heap, and each collection sets that limit.
func TestGrowth(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 4 << 20: 400, 16 << 20: 200, 24 << 20: 100, 40 << 20: 40, 48 << 20: 40, 1 << 30: 40} {
		if got := growthOver(live); got != want {
			t.Errorf("with %d bytes in use it grows by %d percent, want %d", live, got, want)
		}
	}
	TuneMemory(func(string) string { return "" })
	small := growth(t)
	held := make([]*[1 << 20]byte, 96)
	for i := range held {
		held[i] = new([1 << 20]byte)
	}
	large := growth(t)
	if large > memoryGrowth+near || small < large {
		t.Errorf("the heap grows by %d percent, and by %d with 96 MiB more in use", small, large)
	}
	runtime.KeepAlive(held)
}

// near is the tolerance, in percent, between the limit that a collection sets and the
// share of the live heap a moment later.
const near = 5

// growth collects garbage and returns the limit that the collection has set.
func growth(t *testing.T) int {
	t.Helper()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/gogc:percent"}}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		metrics.Read(live)
		percent, want := int(live[1].Value.Uint64()), growthOver(live[0].Value.Uint64())
		if want-near <= percent && percent <= want+near { // other tests may be at work
			return percent
		}
		if time.Now().After(end) {
			t.Fatalf("%d percent with %d bytes in use", percent, live[0].Value.Uint64())
		}
	}
}

// TestLimitMemory: a node takes its share of the container's memory, under the limits
// of either version of control groups, and the operator's settings take precedence.
func TestLimitMemory(t *testing.T) {
	const own = "sys/fs/cgroup/system.slice/rath.service/memory.max"
	for name, c := range map[string]struct {
		files, env map[string]string
		limit      int64
	}{
		"no container":         {nil, nil, math.MaxInt64},
		"version 2":            {map[string]string{"sys/fs/cgroup/memory.max": "536870912\n"}, nil, 402653184},
		"version 2, no limit":  {map[string]string{"sys/fs/cgroup/memory.max": "max\n"}, nil, math.MaxInt64},
		"version 1":            {map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n"}, nil, 805306368},
		"version 1, no limit":  {map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, nil, math.MaxInt64},
		"a service":            {map[string]string{"proc/self/cgroup": "0::/system.slice/rath.service\n", own: "1073741824\n"}, nil, 805306368},
		"a service in another": {map[string]string{"proc/self/cgroup": "0::/../../x\n", "sys/fs/cgroup/x/memory.max": "4096\n", "sys/fs/cgroup/memory.max": "1024\n"}, nil, 768},
		"not a number":         {map[string]string{"sys/fs/cgroup/memory.max": "-1"}, nil, math.MaxInt64},
		"told":                 {map[string]string{"sys/fs/cgroup/memory.max": "1024\n"}, map[string]string{"GOMEMLIMIT": "1GiB"}, 12345},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range c.files {
				path := filepath.Join(root, name)
				must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
				must.Do(t, os.WriteFile(path, []byte(text), 0o600))
			}
			// As the runtime has them of an operator, whose variables are not set here.
			told := int64(math.MaxInt64)
			if c.env["GOMEMLIMIT"] != "" {
				told = 12345
			}
			defer debug.SetMemoryLimit(debug.SetMemoryLimit(told))
			limitMemory(func(name string) string { return c.env[name] }, root)
			if limit := debug.SetMemoryLimit(told); limit != c.limit {
				t.Errorf("%d bytes, want %d", limit, c.limit)
			}
		})
	}
}
