package manifest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/workspace"
)

// BenchmarkMerge merges two branches that changed the same 50 files of 400, each in other
// lines, and fails if that takes more than twice as long as git merge-file over the 50
// pairs.
func BenchmarkMerge(b *testing.B) {
	const files, changed, most = 400, 50, 2
	store := blob.NewMemory()
	var heads [3]blob.Digest
	var dirs [3]string
	for side := range heads {
		dirs[side] = b.TempDir()
		for i := range files {
			lines := make([]string, 300)
			for l := range lines {
				lines[l] = fmt.Sprintf("line %d of file %d\n", l, i)
			}
			if i < changed && side > 0 {
				for l := side * 10; l < len(lines); l += 40 {
					lines[l] = fmt.Sprintf("side %d changed line %d of file %d\n", side, l, i)
				}
			}
			name := filepath.Join(dirs[side], fmt.Sprintf("d%d", i%7), fmt.Sprintf("f%d.txt", i))
			must.Do(b, os.MkdirAll(filepath.Dir(name), 0o755))
			must.Do(b, os.WriteFile(name, []byte(strings.Join(lines, "")), 0o644))
		}
		var err error
		if heads[side], err = workspace.Snapshot(b.Context(), store, dirs[side], heads[0], workspace.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
	began := time.Now()
	for i := range changed {
		name := filepath.Join(fmt.Sprintf("d%d", i%7), fmt.Sprintf("f%d.txt", i))
		cmd := exec.Command("git", "merge-file", "-p", "-q", filepath.Join(dirs[1], name), filepath.Join(dirs[0], name), filepath.Join(dirs[2], name))
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("git merge-file: %v: %s", err, out)
		}
	}
	git := time.Since(began)
	for b.Loop() {
		t, conflicts, err := manifest.Merge(b.Context(), store, manifest.Side{Name: "a", Base: heads[0], Head: heads[1]},
			[]manifest.Side{{Name: "b", Base: heads[0], Head: heads[2]}}, always(manifest.TakeOurs))
		if err != nil || len(conflicts) > 0 {
			b.Fatalf("%v, %v", conflicts, err)
		}
		must.Get(t.Store(b.Context(), store))(b)
	}
	ratio := float64(b.Elapsed()) / float64(b.N) / float64(git)
	b.ReportMetric(ratio, "x-git-merge-file")
	if ratio > most {
		b.Errorf("a merge takes %.2f times as long as git merge-file over the same %d pairs, at most %d", ratio, changed, most)
	}
}
