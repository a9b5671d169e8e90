package node

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// TestTuneMemory: a node takes its share of the container's memory, as either version
// of control groups limits it, and what the operator says holds instead.
func TestTuneMemory(t *testing.T) {
	const own = "sys/fs/cgroup/system.slice/rath.service/memory.max"
	for name, c := range map[string]struct {
		files, env map[string]string
		percent    int
		limit      int64
	}{
		"no container":         {nil, nil, 50, math.MaxInt64},
		"version 2":            {map[string]string{"sys/fs/cgroup/memory.max": "536870912\n"}, nil, 50, 402653184},
		"version 2, no limit":  {map[string]string{"sys/fs/cgroup/memory.max": "max\n"}, nil, 50, math.MaxInt64},
		"version 1":            {map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n"}, nil, 50, 805306368},
		"version 1, no limit":  {map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, nil, 50, math.MaxInt64},
		"a service":            {map[string]string{"proc/self/cgroup": "0::/system.slice/rath.service\n", own: "1073741824\n"}, nil, 50, 805306368},
		"a service in another": {map[string]string{"proc/self/cgroup": "0::/../../x\n", "sys/fs/cgroup/x/memory.max": "4096\n", "sys/fs/cgroup/memory.max": "1024\n"}, nil, 50, 768},
		"not a number":         {map[string]string{"sys/fs/cgroup/memory.max": "-1"}, nil, 50, math.MaxInt64},
		"told":                 {map[string]string{"sys/fs/cgroup/memory.max": "1024\n"}, map[string]string{"GOGC": "80", "GOMEMLIMIT": "1GiB"}, 77, 12345},
		"told of the limit":    {map[string]string{"sys/fs/cgroup/memory.max": "1024\n"}, map[string]string{"GOMEMLIMIT": "1GiB"}, 50, 12345},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range c.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// As the runtime has them of an operator, whose variables are not set here.
			told := int64(math.MaxInt64)
			if c.env["GOMEMLIMIT"] != "" {
				told = 12345
			}
			defer debug.SetGCPercent(debug.SetGCPercent(77))
			defer debug.SetMemoryLimit(debug.SetMemoryLimit(told))
			tuneMemory(func(name string) string { return c.env[name] }, root)
			limit := debug.SetMemoryLimit(told)
			if percent := debug.SetGCPercent(77); percent != c.percent || limit != c.limit {
				t.Errorf("%d percent and %d bytes, want %d and %d", percent, limit, c.percent, c.limit)
			}
		})
	}
}
