package manifest_test

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/workspace"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func numbered(n int, change map[int]string) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		if text, ok := change[i]; ok {
			b.WriteString(text)
			continue
		}
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func TestPatchGolden(t *testing.T) {
	b := blob.NewMemory()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	head := func(files fstest.MapFS) blob.Digest {
		dir := t.TempDir()
		must.Do(t, os.CopyFS(dir, files))
		head := must.Get(workspace.Snapshot(t.Context(), b, dir, blob.Digest{}, workspace.Limits{}))(t)
		return head
	}
	from := head(fstest.MapFS{
		"far.txt":      file(numbered(40, nil)),
		"near.txt":     file(numbered(12, nil)),
		"ends.txt":     file("first\nlast"),
		"gone.txt":     file("one\ntwo\n"),
		"binary":       file("a\x00b"),
		"run.sh":       file("#!/bin/sh\n"),
		"same.txt":     file("same\n"),
		"old dir":      {Mode: fs.ModeDir},
		"kind":         file("was a file\n"),
		"quo\"ted.txt": file("x\n"),
		"sub/emptied":  file("x\n"),
		"large":        file(strings.Repeat("0123456789abcde\n", 70_000)),
	})
	to := head(fstest.MapFS{
		"far.txt":      file(numbered(40, map[int]string{2: "changed 2\n", 30: "", 39: "line 39\nadded\n"})),
		"near.txt":     file(numbered(12, map[int]string{3: "changed 3\n", 9: "changed 9\n"})),
		"ends.txt":     file("first\nlast\n"),
		"new.txt":      file("no newline at the end"),
		"binary":       file("a\x00c"),
		"run.sh":       {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
		"same.txt":     file("same\n"),
		"kind/file":    file("now a directory\n"),
		"link":         {Data: []byte("far.txt"), Mode: fs.ModeSymlink},
		"quo\"ted.txt": file("y\n"),
		"sub/emptied":  file(""),
		"large":        file(strings.Repeat("0123456789abcde\n", 70_001)),
	})
	diffs := must.Get(manifest.Patch(t.Context(), b, from, to))(t)
	var got bytes.Buffer
	must.Do(t, manifest.WriteUnified(&got, diffs))
	golden := filepath.Join("testdata", "patch.golden")
	if *update {
		must.Do(t, os.WriteFile(golden, got.Bytes(), 0o644))
	}
	want := must.Get(os.ReadFile(golden))(t)
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}

// apply makes the new text from the old one and the hunks, checking every
// number and every line on the way.
func applyHunks(t *testing.T, old string, hunks []manifest.Hunk) string {
	t.Helper()
	lines := strings.SplitAfter(old, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	var out strings.Builder
	next, made := 0, 0
	for _, h := range hunks {
		start := h.OldStart - 1
		if h.OldLines == 0 {
			start = h.OldStart
		}
		for ; next < start; next++ {
			out.WriteString(lines[next])
			made++
		}
		newStart := h.NewStart - 1
		if h.NewLines == 0 {
			newStart = h.NewStart
		}
		if made != newStart {
			t.Fatalf("the hunk starts at new line %d, it should at %d", newStart, made)
		}
		oldLines, newLines := 0, 0
		for _, l := range h.Lines {
			text := l.Text
			if !l.NoEOL {
				text += "\n"
			}
			if l.Op != '+' {
				if lines[next] != text {
					t.Fatalf("old line %d is %q, the hunk says %q", next, lines[next], text)
				}
				next++
				oldLines++
			}
			if l.Op != '-' {
				out.WriteString(text)
				newLines++
				made++
			}
		}
		if oldLines != h.OldLines || newLines != h.NewLines {
			t.Fatalf("the hunk has %d and %d lines, it says %d and %d", oldLines, newLines, h.OldLines, h.NewLines)
		}
	}
	for ; next < len(lines); next++ {
		out.WriteString(lines[next])
	}
	return out.String()
}

func TestHunksLeadFromOldToNew(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	text := func() string {
		var b strings.Builder
		for range r.IntN(40) {
			fmt.Fprintf(&b, "%d\n", r.IntN(6))
		}
		if r.IntN(2) == 0 {
			b.WriteString("end without newline")
		}
		return b.String()
	}
	b := blob.NewMemory()
	head := func(text string) blob.Digest {
		ref := must.Get(b.Put(t.Context(), strings.NewReader(text)))(t)
		tree := must.Get(manifest.NewTree([]manifest.Entry{{Path: "f", Kind: manifest.File, Size: ref.Size, Digest: ref.Digest}}))(t)
		d := must.Get(tree.Store(t.Context(), b))(t)
		return d
	}
	for range 400 {
		old, now := text(), text()
		diffs := must.Get(manifest.Patch(t.Context(), b, head(old), head(now)))(t)
		if old == now {
			if len(diffs) != 0 {
				t.Fatalf("equal files differ: %+v", diffs)
			}
			continue
		}
		if got := applyHunks(t, old, diffs[0].Hunks); got != now {
			t.Fatalf("from %q the hunks lead to %q, not to %q", old, got, now)
		}
	}
}
