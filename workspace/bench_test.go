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
	"github.com/rathcluster/rath/workspace"
)

// BenchmarkRestore restores 5,000 files of 10 KiB beside a copy of the
// directory, as cp makes one. It fails where that takes more than its part of the copy,
// each at its best.
func BenchmarkRestore(b *testing.B) {
	const (
		files = 5000
		bar   = 2.0
	)
	dir, blobs := b.TempDir(), blob.NewMemory()
	for i := range files {
		p := filepath.Join(dir, "from", fmt.Sprintf("d%02d", i%100), fmt.Sprintf("%04d.txt", i))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			b.Fatal(err)
		}
		data := strings.Repeat(fmt.Sprintf("%09d ", i), 1024)
		if err := os.WriteFile(p, []byte(data), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	head, err := workspace.Snapshot(b.Context(), blobs, filepath.Join(dir, "from"), blob.Digest{}, workspace.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	restored, copied := time.Hour, time.Hour
	for b.Loop() {
		to := filepath.Join(dir, "to")
		began := time.Now()
		if err := workspace.Restore(b.Context(), blobs, head, to); err != nil {
			b.Fatal(err)
		}
		restored = min(restored, time.Since(began))
		if err := os.RemoveAll(to); err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		if out, err := exec.Command("cp", "-a", filepath.Join(dir, "from"), to).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		copied = min(copied, time.Since(began))
		if err := os.RemoveAll(to); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(copied.Microseconds())/1000, "ms-copy")
	b.ReportMetric(restored.Seconds()/copied.Seconds(), "x-copy")
	b.ReportMetric(bar, "x-copy-bar")
	if restored.Seconds() > bar*copied.Seconds() {
		b.Errorf("restoring %d files takes %v, a copy %v: bar %.0f times", files, restored, copied, bar)
	}
}
