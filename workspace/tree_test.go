package workspace_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/workspace"
)

var someDigest = blob.Sum([]byte("x"))

func file(p string) workspace.Entry {
	return workspace.Entry{Path: p, Kind: workspace.File, Size: 1, Digest: someDigest}
}

func dirEntry(p string) workspace.Entry { return workspace.Entry{Path: p, Kind: workspace.Dir} }

func link(p, target string) workspace.Entry {
	return workspace.Entry{Path: p, Kind: workspace.Symlink, Target: target}
}

func TestNewTree(t *testing.T) {
	for name, tt := range map[string]struct {
		entries []workspace.Entry
		ok      bool
	}{
		"empty":                {nil, true},
		"any order":            {[]workspace.Entry{file("d/f"), dirEntry("d"), file("a")}, true},
		"links":                {[]workspace.Entry{dirEntry("d"), link("l", "d"), link("d/up", "../l"), link("dangling", "nowhere/at/all"), link("d/here", "./x")}, true},
		"newline":              {[]workspace.Entry{file("a\nb")}, true},
		"twice":                {[]workspace.Entry{file("a"), dirEntry("a")}, false},
		"no parent":            {[]workspace.Entry{file("d/f")}, false},
		"parent is a file":     {[]workspace.Entry{file("d"), file("d/f")}, false},
		"parent is a link":     {[]workspace.Entry{link("d", "e"), file("d/f")}, false},
		"absolute":             {[]workspace.Entry{file("/a")}, false},
		"up":                   {[]workspace.Entry{file("../a")}, false},
		"dot":                  {[]workspace.Entry{file("./a")}, false},
		"trailing slash":       {[]workspace.Entry{dirEntry("a/")}, false},
		"double slash":         {[]workspace.Entry{dirEntry("a"), file("a//b")}, false},
		"empty path":           {[]workspace.Entry{file("")}, false},
		"NUL":                  {[]workspace.Entry{file("a\x00b")}, false},
		"not UTF-8":            {[]workspace.Entry{file("a\xff")}, false},
		"long name":            {[]workspace.Entry{file(strings.Repeat("n", 256))}, false},
		"unknown kind":         {[]workspace.Entry{{Path: "a", Kind: "device"}}, false},
		"file without digest":  {[]workspace.Entry{{Path: "a", Kind: workspace.File}}, false},
		"negative size":        {[]workspace.Entry{{Path: "a", Kind: workspace.File, Size: -1, Digest: someDigest}}, false},
		"directory with size":  {[]workspace.Entry{{Path: "a", Kind: workspace.Dir, Size: 1}}, false},
		"link with digest":     {[]workspace.Entry{{Path: "a", Kind: workspace.Symlink, Target: "b", Digest: someDigest}}, false},
		"link out":             {[]workspace.Entry{link("l", "..")}, false},
		"link out from below":  {[]workspace.Entry{dirEntry("d"), link("d/l", "../../x")}, false},
		"link to the root":     {[]workspace.Entry{link("l", "/etc")}, false},
		"link up after a name": {[]workspace.Entry{dirEntry("d"), link("l", "d/../x")}, false},
		"empty link":           {[]workspace.Entry{link("l", "")}, false},
	} {
		tree, err := workspace.NewTree(tt.entries)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, workspace.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		again, err := workspace.Decode(tree.Encode())
		if err != nil || !slices.Equal(slices.Collect(again.Entries()), slices.Collect(tree.Entries())) {
			t.Errorf("%s: does not survive encoding: %v", name, err)
		}
	}
}

// TestFits: a manifest is held to the limits by the sizes that it states.
func TestFits(t *testing.T) {
	sized := func(p string, size int64) workspace.Entry {
		e := file(p)
		e.Size = size
		return e
	}
	for name, tt := range map[string]struct {
		entries    []workspace.Entry
		limits     workspace.Limits
		what, path string
	}{
		"empty":     {nil, workspace.Limits{}, "", ""},
		"just fits": {[]workspace.Entry{dirEntry("a"), sized("a/b", 6), link("c", "a"), sized("d", 4)}, workspace.Limits{Files: 4, Bytes: 10}, "", ""},
		"one file":  {[]workspace.Entry{dirEntry("a"), sized("a/b", 6), link("c", "a"), sized("d", 4)}, workspace.Limits{Files: 3, Bytes: 10}, "files", "d"},
		"one byte":  {[]workspace.Entry{sized("a", 6), sized("d", 5)}, workspace.Limits{Files: 4, Bytes: 10}, "bytes", "d"},
		"defaults":  {[]workspace.Entry{sized("a", workspace.DefaultBytes), sized("b", 1)}, workspace.Limits{}, "bytes", "b"},
		"overflow":  {[]workspace.Entry{sized("a", 9), sized("b", math.MaxInt64), sized("c", math.MaxInt64)}, workspace.Limits{Bytes: 10}, "bytes", "b"},
	} {
		tree, err := workspace.NewTree(tt.entries)
		if err != nil {
			t.Fatal(err)
		}
		err = tree.Fits(tt.limits)
		limit, ok := errors.AsType[*workspace.LimitError](err)
		if tt.what == "" && err != nil || tt.what != "" && (!ok || limit.What != tt.what || limit.Path != tt.path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLinksStayInside(t *testing.T) {
	parts := []string{"", ".", "..", "d", "l", "s"}
	var targets []string
	for _, a := range parts {
		for _, b := range parts {
			for _, c := range parts {
				targets = append(targets, strings.Join([]string{a, b, c}, "/"))
			}
		}
	}
	accepted := 0
	for _, target := range targets {
		entries := []workspace.Entry{dirEntry("d"), dirEntry("d/s"), link("d/l", target), link("l", "d"), link("s", "d/s")}
		tree, err := workspace.NewTree(entries)
		if err != nil {
			continue
		}
		accepted++
		b := blob.NewMemory()
		head, err := tree.Store(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(restore(t, b, head)))
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(dir, "restored")
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, "d", "l")); err == nil && real != dir && !strings.HasPrefix(real, dir+string(filepath.Separator)) {
			t.Errorf("the link to %q leads to %s, out of %s", target, real, dir)
		}
	}
	if accepted < 20 {
		t.Errorf("only %d of %d targets are accepted", accepted, len(targets))
	}
}

func TestLoad(t *testing.T) {
	b := blob.NewMemory()
	if tree, err := workspace.Load(t.Context(), b, blob.Digest{}); err != nil || tree.Len() != 0 {
		t.Errorf("the zero head: %v, %v", tree, err)
	}
	if _, err := workspace.Load(t.Context(), b, someDigest); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("an absent head: %v", err)
	}
	ref, err := b.Put(t.Context(), strings.NewReader("no manifest"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := workspace.Load(t.Context(), b, ref.Digest); !errors.Is(err, workspace.ErrMalformed) {
		t.Errorf("a head of something else: %v", err)
	}
}

func TestRead(t *testing.T) {
	b := blob.NewMemory()
	dir := t.TempDir()
	write(t, dir, map[string]string{"sub/f": "content"})
	head := snapshot(t, b, dir, blob.Digest{})
	data, err := workspace.Read(t.Context(), b, head, "sub/f")
	if err != nil || string(data) != "content" {
		t.Errorf("Read = %q, %v", data, err)
	}
	if _, err := workspace.Read(t.Context(), b, head, "sub/g"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := workspace.Read(t.Context(), b, head, "sub"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	tree, err := workspace.NewTree([]workspace.Entry{file("a"), dirEntry("d"), link("d/l", "../a")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(tree.Encode())
	f.Add([]byte(`{"format":1,"entries":[]}`))
	f.Add([]byte(`{"format":1,"entries":[{"path":"../x","kind":"dir"}]}`))
	f.Add([]byte(`{"format":1,"entries":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := workspace.Decode(data)
		if err != nil {
			if !errors.Is(err, workspace.ErrMalformed) {
				t.Fatalf("the error is %v", err)
			}
			return
		}
		if !bytes.Equal(tree.Encode(), data) {
			t.Fatalf("%q is accepted and encodes as %q", data, tree.Encode())
		}
		for e := range tree.Entries() {
			if !filepath.IsLocal(filepath.FromSlash(e.Path)) || os.IsPathSeparator(e.Path[len(e.Path)-1]) {
				t.Fatalf("accepted path %q", e.Path)
			}
		}
	})
}
