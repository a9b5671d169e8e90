package operate

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestCheckPod gives the pod limits of both versions of control groups.
func TestCheckPod(t *testing.T) {
	for name, tc := range map[string]struct {
		file, text string
		goLimit    int64 // GOMEMLIMIT, 0 for none
		ok         bool
		want       string
	}{
		"no control group": {"", "", 0, true, "no limit of memory"},
		"no limit, 2":      {"memory.max", "max\n", 0, true, "no limit of memory"},
		"no limit, 1":      {"memory/memory.limit_in_bytes", "9223372036854771712\n", 0, true, "no limit of memory"},
		"not told to Go":   {"memory.max", "2147483648\n", 0, true, "memory 2048 MiB, GOMEMLIMIT not set"},
		"three quarters":   {"memory.max", "2147483648\n", 1536 << 20, true, "of which Go takes 1536 MiB"},
		"too much":         {"memory/memory.limit_in_bytes", "1073741824\n", 1536 << 20, false, "which GOMEMLIMIT 1536 MiB exceeds"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if tc.file != "" {
				file := filepath.Join(root, "sys/fs/cgroup", tc.file)
				must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
				must.Do(t, os.WriteFile(file, []byte(tc.text), 0o600))
			}
			if tc.goLimit > 0 {
				before := debug.SetMemoryLimit(tc.goLimit)
				defer debug.SetMemoryLimit(before)
			}
			f := checkPod(root)
			if f.OK != tc.ok || !strings.Contains(f.Found, tc.want) || !tc.ok && f.Remedy == "" {
				t.Errorf("%+v, want %q", f, tc.want)
			}
		})
	}
	root := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(root, "none"))
	if f := checkPod(root); f.OK || !strings.Contains(f.Remedy, "emptyDir") {
		t.Errorf("without a place for files: %+v", f)
	}
}
