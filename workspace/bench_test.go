package workspace_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/workspace"
)

// BenchmarkRestore restores 5,000 files of 10 KiB and compares the time with a copy of the
// directory by cp, each at its best. It fails if the ratio exceeds the bar.
func BenchmarkRestore(b *testing.B) {
	const (
		files = 5000
		bar   = 2.0
	)
	dir, blobs := b.TempDir(), blob.NewMemory()
	for i := range files {
		p := filepath.Join(dir, "from", fmt.Sprintf("d%02d", i%100), fmt.Sprintf("%04d.txt", i))
		must.Do(b, os.MkdirAll(filepath.Dir(p), 0o755))
		data := strings.Repeat(fmt.Sprintf("%09d ", i), 1024)
		must.Do(b, os.WriteFile(p, []byte(data), 0o644))
	}
	head := must.Get(workspace.Snapshot(b.Context(), blobs, filepath.Join(dir, "from"), blob.Digest{}, workspace.Limits{}))(b)
	restored, copied := time.Hour, time.Hour
	for b.Loop() {
		to := filepath.Join(dir, "to")
		began := time.Now()
		must.Do(b, workspace.Restore(b.Context(), blobs, head, to))
		restored = min(restored, time.Since(began))
		must.Do(b, os.RemoveAll(to))
		began = time.Now()
		if out, err := exec.Command("cp", "-a", filepath.Join(dir, "from"), to).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		copied = min(copied, time.Since(began))
		must.Do(b, os.RemoveAll(to))
	}
	b.ReportMetric(float64(copied.Microseconds())/1000, "ms-copy")
	b.ReportMetric(restored.Seconds()/copied.Seconds(), "x-copy")
	b.ReportMetric(bar, "x-copy-bar")
	if restored.Seconds() > bar*copied.Seconds() {
		b.Errorf("restoring %d files takes %v, a copy %v: bar %.0f times", files, restored, copied, bar)
	}
}
