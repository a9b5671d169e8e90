package manifest_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	scratch.InMemory()
	os.Exit(m.Run())
}

// TestHeadGolden pins the bytes of a head of format 3.
func TestHeadGolden(t *testing.T) {
	b := blob.NewMemory()
	var p manifest.Pack
	small, long := []byte("hello"), bytes.Repeat([]byte("0123456789abcdef"), 100)
	for _, data := range [][]byte{small, long} {
		p.Add(blob.Sum(data), data)
	}
	must.Do(t, p.Store(t.Context(), b))
	entry := func(p string, data []byte) manifest.Entry {
		return manifest.Entry{Path: p, Kind: manifest.File, Size: int64(len(data)), Digest: blob.Sum(data)}
	}
	tree, err := manifest.NewTree([]manifest.Entry{
		entry("a", small), dirEntry("d"), entry("d/a", small), entry("d/long", long), dirEntry("d/e"), link("l", "d/e"), entry("none", nil), entry("own", []byte("own")),
	})
	must.Do(t, err)
	tree, head, err := tree.Packed(&p).Put(t.Context(), b)
	must.Do(t, err)
	rc, err := b.Get(t.Context(), head)
	must.Do(t, err)
	var buf bytes.Buffer
	must.Get(buf.ReadFrom(rc))(t)
	const want = `{"format":3,"packs":["793daea1382e0e4c156056dacfc7512d575782b9d10854548e1836b2ccd0537a"],"dirs":[[{"name":"a","kind":"file","size":5,"digest":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824","pack":1,"len":5},{"name":"d","kind":"dir","dir":1},{"name":"l","kind":"symlink","target":"d/e"},{"name":"none","kind":"file","digest":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},{"name":"own","kind":"file","size":3,"digest":"5b3975651c3cab92d044c096dc30a1c2d9525497457472de48c51ecb363d1f4a"}],[{"name":"a","kind":"file","size":5,"digest":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824","pack":1,"len":5},{"name":"e","kind":"dir","dir":2},{"name":"long","kind":"file","size":1600,"digest":"1f1a5c83e53c9faa87badd5d17c45ffec49b137430c9817dd5c9420fd96aaa3e","pack":1,"at":5,"len":35}],[]]}`
	if buf.String() != want {
		t.Errorf("%s", buf.String())
	}
	again, err := manifest.Load(t.Context(), b, head)
	if err != nil || !slices.Equal(slices.Collect(again.Entries()), slices.Collect(tree.Entries())) {
		t.Fatalf("it does not survive encoding: %v", err)
	}
	if _, same, err := again.Put(t.Context(), b); err != nil || same == head {
		t.Errorf("a head that only names another one is the same: %v", err)
	}
	if _, same, err := again.Lacking(map[blob.Digest]bool{head: true}).Put(t.Context(), b); err != nil || same != head {
		t.Errorf("written again it is %s, %v", same.Short(), err)
	}
	files := manifest.NewFiles(b, again)
	for _, data := range [][]byte{small, long, nil} {
		rc := must.Get(files.Get(t.Context(), blob.Sum(data)))(t)
		var got bytes.Buffer
		if _, err := got.ReadFrom(rc); err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("%d bytes are %d, %v", len(data), got.Len(), err)
		}
	}
}

// TestHeadRefused rejects heads that this package does not write, and heads beyond its
// limits.
func TestHeadRefused(t *testing.T) {
	d := someDigest.String()
	file := func(rest string) string {
		return `{"format":3,"packs":["` + d + `"],"dirs":[[{"name":"a","kind":"file","size":9,"digest":"` + d + `"` + rest + `}]]}`
	}
	for name, head := range map[string]string{
		"no directory":               `{"format":3,"dirs":[]}`,
		"another key":                `{"format":3,"dirs":[[]],"x":1}`,
		"not canonical":              `{"format":3, "dirs":[[]]}`,
		"names not sorted":           `{"format":3,"dirs":[[{"name":"b","kind":"dir","dir":1},{"name":"a","kind":"dir","dir":2}],[],[]]}`,
		"a slash":                    `{"format":3,"dirs":[[{"name":"a/b","kind":"symlink","target":"x"}]]}`,
		"up":                         `{"format":3,"dirs":[[{"name":"..","kind":"dir","dir":1}],[]]}`,
		"itself":                     `{"format":3,"dirs":[[{"name":"a","kind":"dir"}]]}`,
		"one above":                  `{"format":3,"dirs":[[{"name":"a","kind":"dir","dir":1}],[{"name":"b","kind":"dir","dir":1}]]}`,
		"no such directory":          `{"format":3,"dirs":[[{"name":"a","kind":"dir","dir":2}],[]]}`,
		"no such head":               `{"format":3,"dirs":[[{"name":"a","kind":"dir","dir":1,"head":1}],[]]}`,
		"a pack of a link":           `{"format":3,"packs":["` + d + `"],"dirs":[[{"name":"a","kind":"symlink","target":"x","pack":1,"len":1}]]}`,
		"no such pack":               file(`,"pack":2,"len":1`),
		"longer than the file":       file(`,"pack":1,"len":10`),
		"before the pack":            file(`,"pack":1,"at":-1,"len":1`),
		"a place without a pack":     file(`,"len":1`),
		"a pack and parts":           file(`,"pack":1,"len":1,"parts":["` + d + `"]`),
		"a file that is a directory": file(`,"dir":1`),
	} {
		if _, err := decode([]byte(head)); !errors.Is(err, manifest.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := decode([]byte(`{"format":4,"dirs":[]}`)); !errors.Is(err, manifest.ErrNewer) {
		t.Errorf("a format of a later release: %v", err)
	}
	// Each directory contains the next one twice: 2^40 files.
	var bomb strings.Builder
	bomb.WriteString(`{"format":3,"dirs":[`)
	for i := range 40 {
		fmt.Fprintf(&bomb, `[{"name":"a","kind":"dir","dir":%d},{"name":"b","kind":"dir","dir":%d}],`, i+1, i+1)
	}
	bomb.WriteString(`[]]}`)
	if _, err := decode([]byte(bomb.String())); !errors.Is(err, manifest.ErrMalformed) {
		t.Errorf("2^40 directories: %v", err)
	}
	sandboxtest.End(t, "forge a head: links as parents, places outside, 2^40 directories", "ErrMalformed")
}

// TestDamagedPack: a wrong location, and bytes that unpack to more than the head's size,
// are errors when the file is read.
func TestDamagedPack(t *testing.T) {
	b := blob.NewMemory()
	var p manifest.Pack
	data := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	p.Add(blob.Sum(data), data)
	must.Do(t, p.Store(t.Context(), b))
	tree := must.Get(manifest.NewTree([]manifest.Entry{{Path: "a", Kind: manifest.File, Size: int64(len(data)), Digest: blob.Sum(data)}}))(t)
	_, head := must.Pair(tree.Packed(&p).Put(t.Context(), b))(t)
	rc := must.Get(b.Get(t.Context(), head))(t)
	var good bytes.Buffer
	must.Get(good.ReadFrom(rc))(t)
	for _, change := range [][2]string{{`"size":16000`, `"size":15999`}, {`"size":16000`, `"size":16001`}, {`"digest":"`, `"digest":"0`}, {`"pack":1,`, `"pack":1,"at":1000000,`}, {`"pack":1,`, `"pack":1,"at":3,`}} {
		bad := strings.Replace(good.String(), change[0], change[1], 1)
		if change[1] == `"digest":"0` {
			bad = strings.Replace(good.String(), blob.Sum(data).String(), someDigest.String(), 1)
		}
		ref, err := b.Put(t.Context(), strings.NewReader(bad))
		must.Do(t, err)
		tree, err := manifest.Load(t.Context(), b, ref.Digest)
		if err != nil {
			t.Errorf("%s: %v", change[1], err)
			continue
		}
		for e := range tree.Entries() {
			rc, err := manifest.NewFiles(b, tree).Get(t.Context(), e.Digest)
			if err == nil {
				_, err = new(bytes.Buffer).ReadFrom(rc)
			}
			if !errors.Is(err, blob.ErrCorrupt) && !errors.Is(err, manifest.ErrMalformed) {
				t.Errorf("%s: %v", change[1], err)
			}
		}
	}
}

// TestTreeOfTrees: a tree of the entries of others finds their files, and names their
// directories.
func TestTreeOfTrees(t *testing.T) {
	b := blob.NewMemory()
	stored := func(p, text string) *manifest.Tree {
		var pack manifest.Pack
		d := blob.Sum([]byte(text))
		pack.Add(d, []byte(text))
		must.Do(t, pack.Store(t.Context(), b))
		tree := must.Get(manifest.NewTree([]manifest.Entry{dirEntry(p), {Path: p + "/f", Kind: manifest.File, Size: int64(len(text)), Digest: d}}))(t)
		tree, _ = must.Pair(tree.Packed(&pack).Put(t.Context(), b))(t)
		return tree
	}
	one, two := stored("one", "1"), stored("two", "2")
	both, err := manifest.NewTree(slices.Concat(slices.Collect(one.Entries()), slices.Collect(two.Entries())), one, two)
	must.Do(t, err)
	head, err := both.Store(t.Context(), b)
	must.Do(t, err)
	both, err = manifest.Load(t.Context(), b, head)
	if err != nil || len(slices.Collect(both.Blobs())) != 3+2 {
		t.Fatalf("%v, %v", slices.Collect(both.Blobs()), err)
	}
	for e := range both.Entries() {
		if e.Kind != manifest.File {
			continue
		}
		if _, err := manifest.NewFiles(b, both).Get(t.Context(), e.Digest); err != nil {
			t.Error(err)
		}
	}
}
