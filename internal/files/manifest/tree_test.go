package manifest_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/ignore"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

var someDigest = blob.Sum([]byte("x"))

func file(p string) manifest.Entry {
	return manifest.Entry{Path: p, Kind: manifest.File, Size: 1, Digest: someDigest}
}

func dirEntry(p string) manifest.Entry { return manifest.Entry{Path: p, Kind: manifest.Dir} }

func link(p, target string) manifest.Entry {
	return manifest.Entry{Path: p, Kind: manifest.Symlink, Target: target}
}

// decode reads a head whose blob has these bytes, and no other.
func decode(data []byte) (*manifest.Tree, error) {
	head := blob.Sum(data)
	return manifest.Read(head, func(d blob.Digest) ([]byte, error) {
		if d == head {
			return data, nil
		}
		return nil, blob.ErrNotFound
	})
}

func TestNewTree(t *testing.T) {
	for name, tt := range map[string]struct {
		entries []manifest.Entry
		ok      bool
	}{
		"empty":                {nil, true},
		"any order":            {[]manifest.Entry{file("d/f"), dirEntry("d"), file("a")}, true},
		"links":                {[]manifest.Entry{dirEntry("d"), link("l", "d"), link("d/up", "../l"), link("dangling", "nowhere/at/all"), link("d/here", "./x")}, true},
		"newline":              {[]manifest.Entry{file("a\nb")}, true},
		"twice":                {[]manifest.Entry{file("a"), dirEntry("a")}, false},
		"no parent":            {[]manifest.Entry{file("d/f")}, false},
		"parent is a file":     {[]manifest.Entry{file("d"), file("d/f")}, false},
		"parent is a link":     {[]manifest.Entry{link("d", "e"), file("d/f")}, false},
		"absolute":             {[]manifest.Entry{file("/a")}, false},
		"up":                   {[]manifest.Entry{file("../a")}, false},
		"dot":                  {[]manifest.Entry{file("./a")}, false},
		"trailing slash":       {[]manifest.Entry{dirEntry("a/")}, false},
		"double slash":         {[]manifest.Entry{dirEntry("a"), file("a//b")}, false},
		"empty path":           {[]manifest.Entry{file("")}, false},
		"NUL":                  {[]manifest.Entry{file("a\x00b")}, false},
		"not UTF-8":            {[]manifest.Entry{file("a\xff")}, false},
		"long name":            {[]manifest.Entry{file(strings.Repeat("n", 256))}, false},
		"unknown kind":         {[]manifest.Entry{{Path: "a", Kind: "device"}}, false},
		"file without digest":  {[]manifest.Entry{{Path: "a", Kind: manifest.File}}, false},
		"negative size":        {[]manifest.Entry{{Path: "a", Kind: manifest.File, Size: -1, Digest: someDigest}}, false},
		"directory with size":  {[]manifest.Entry{{Path: "a", Kind: manifest.Dir, Size: 1}}, false},
		"link with digest":     {[]manifest.Entry{{Path: "a", Kind: manifest.Symlink, Target: "b", Digest: someDigest}}, false},
		"link out":             {[]manifest.Entry{link("l", "..")}, true},
		"link out from below":  {[]manifest.Entry{dirEntry("d"), link("d/l", "../../x")}, true},
		"link to the root":     {[]manifest.Entry{link("l", "/etc")}, true},
		"link up after a name": {[]manifest.Entry{dirEntry("d"), link("l", "d/../x")}, true},
		"empty link":           {[]manifest.Entry{link("l", "")}, false},
		"link with NUL":        {[]manifest.Entry{link("l", "a\x00b")}, false},
		"long link":            {[]manifest.Entry{link("l", strings.Repeat("n", 5000))}, false},
	} {
		tree, err := manifest.NewTree(tt.entries)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, manifest.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		again, err := decode(tree.Encode())
		if err != nil || !slices.Equal(slices.Collect(again.Entries()), slices.Collect(tree.Entries())) {
			t.Errorf("%s: does not survive encoding: %v", name, err)
		}
	}
	sandboxtest.End(t, "forge an archive: names that lead out, twice, devices, sizes below 0", "ErrMalformed")
}

func TestLoad(t *testing.T) {
	b := blob.NewMemory()
	if tree, err := manifest.Load(t.Context(), b, blob.Digest{}); err != nil || tree.Len() != 0 {
		t.Errorf("the zero head: %v, %v", tree, err)
	}
	if _, err := manifest.Load(t.Context(), b, someDigest); !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("an absent head: %v", err)
	}
	ref := must.Get(b.Put(t.Context(), strings.NewReader("no manifest")))(t)
	if _, err := manifest.Load(t.Context(), b, ref.Digest); !errors.Is(err, manifest.ErrMalformed) {
		t.Errorf("a head of something else: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	tree := must.Get(manifest.NewTree([]manifest.Entry{file("a"), dirEntry("d"), link("d/l", "../a")}))(f)
	f.Add(tree.Encode())
	f.Add([]byte(`{"format":1,"entries":[]}`))
	f.Add([]byte(`{"format":2,"exclude":["*.log","!/sub/**/keep"],"entries":[{"path":"l","kind":"symlink","target":"/usr"}]}`))
	f.Add([]byte(`{"format":1,"entries":[{"path":"../x","kind":"dir"}]}`))
	f.Add([]byte(`{"format":1,"entries":null}`))
	f.Add([]byte(`{"format":3,"packs":["` + someDigest.String() + `"],"dirs":[[{"name":"a","kind":"file","size":1,"digest":"` + someDigest.String() + `","pack":1,"len":1},{"name":"d","kind":"dir","dir":1}],[]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := decode(data)
		if err != nil {
			if !errors.Is(err, manifest.ErrMalformed) && !errors.Is(err, manifest.ErrNewer) && !errors.Is(err, blob.ErrNotFound) {
				t.Fatalf("the error is %v", err)
			}
			return
		}
		if !bytes.HasPrefix(data, []byte(`{"format":3,`)) && !bytes.Equal(tree.Encode(), data) {
			t.Fatalf("%q is accepted and encodes as %q", data, tree.Encode())
		}
		for e := range tree.Entries() {
			if !filepath.IsLocal(filepath.FromSlash(e.Path)) || os.IsPathSeparator(e.Path[len(e.Path)-1]) {
				t.Fatalf("accepted path %q", e.Path)
			}
		}
	})
}

// TestExcluded keeps the rules with the tree, and only then writes the later format.
func TestExcluded(t *testing.T) {
	tree := must.Get(manifest.NewTree([]manifest.Entry{file("a")}))(t)
	rules := new(ignore.Rules)
	if got := tree.Excluding(rules).Encode(); !bytes.HasPrefix(got, []byte(`{"format":1,"entries"`)) {
		t.Errorf("without lines it is %s", got)
	}
	must.Do(t, rules.Add("sub", []byte("*.log\n!keep\n")))
	data := tree.Excluding(rules).Encode()
	if !bytes.HasPrefix(data, []byte(`{"format":2,"exclude":["/sub/**/*.log","!/sub/**/keep"],"entries":[`)) {
		t.Errorf("with lines it is %s", data)
	}
	again := must.Get(decode(data))(t)
	if _, out := again.Excluded().Excludes("sub/x/y.log", false); !out {
		t.Error("the rules are lost")
	}
	for _, bad := range []string{
		`{"format":1,"exclude":["x"],"entries":[]}`, `{"format":2,"entries":[]}`, `{"format":2,"exclude":[],"entries":[]}`, `{"format":2,"exclude":["# x"],"entries":[]}`,
		`{"format":1,"entries":[{"path":"l","kind":"symlink","target":"/usr"}]}`, `{"format":3,"entries":[]}`,
	} {
		if _, err := decode([]byte(bad)); !errors.Is(err, manifest.ErrMalformed) {
			t.Errorf("%s is read: %v", bad, err)
		}
	}
}
