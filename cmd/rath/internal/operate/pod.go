package operate

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/internal/evidence/view"
)

// checkPod checks the resources that Kubernetes gives the pod of this process: memory,
// processors, a directory for temporary files. root is "/" outside of tests.
func checkPod(root string) finding {
	f := finding{Check: "pod", OK: true, Found: view.Counted(int64(runtime.GOMAXPROCS(0)), "processor")}
	limit, collects := memoryLimit(root), debug.SetMemoryLimit(-1)
	switch {
	case limit == 0:
		f.Found += ", no limit of memory"
		f.Remedy = "a node without limits.memory may use the machine's whole memory, and the kernel then ends any pod there"
	case collects == math.MaxInt64:
		f.Found += ", memory " + mebibytes(limit) + ", GOMEMLIMIT not set"
		f.Remedy = "the kernel ends the pod before Go frees memory: give limits.memory in Mi or Gi, of which the chart makes GOMEMLIMIT, or set that"
	case collects >= limit:
		f.OK = false
		f.Found += ", memory " + mebibytes(limit) + ", which GOMEMLIMIT " + mebibytes(collects) + " exceeds"
		f.Remedy = "the kernel ends the pod before Go frees memory: set GOMEMLIMIT to three quarters of limits.memory"
	default:
		f.Found += ", memory " + mebibytes(limit) + ", of which Go takes " + mebibytes(collects)
	}
	dir, err := os.MkdirTemp("", "rath-doctor-")
	if err == nil {
		err = os.Remove(dir)
	}
	if err != nil {
		f.OK = false
		f.Found += fmt.Sprintf(", %s cannot be written: %v", os.TempDir(), err)
		f.Remedy = "mount an emptyDir at /tmp: sandboxes and downloads lie there"
	}
	return f
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

// memoryLimit returns the limit of the container's control group, 0 for no limit.
func memoryLimit(root string) int64 {
	for _, file := range []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"} { // version 2, 1
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || n > math.MaxInt64/2 { // "max", and the equivalent of version 1
			return 0
		}
		return n
	}
	return 0
}
