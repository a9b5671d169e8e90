package dossier_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// stepRef is a field of evidence that can be changed.
type stepRef struct {
	name string
	set  func(e *dossier.Evidence, to string)
}

// durability follows from the commits, and may be stated as well.
const durability = "durability as stated"

// fields lists every field of evidence in its JSON form, down to those of its commits.
func fields(e *dossier.Evidence) (out []stepRef) {
	add := func(name string, set func(e *dossier.Evidence, to string)) { out = append(out, stepRef{name, set}) }
	add("run", func(e *dossier.Evidence, to string) { e.Run = run.ID(idOf(to)) })
	add("tenant", func(e *dossier.Evidence, to string) { e.Home.Tenant = session.Tenant(idOf(to)) })
	add("home", func(e *dossier.Evidence, to string) { e.Home.ID = session.ID(idOf(to)) })
	add("layout", func(e *dossier.Evidence, to string) { e.Layout = 1 + numberOf(to) })
	for i := range e.Stated {
		add("name of what is stated", func(e *dossier.Evidence, to string) { e.Stated[i].Name = to })
		add("value of what is stated", func(e *dossier.Evidence, to string) { e.Stated[i].Value = to })
	}
	add(durability, func(e *dossier.Evidence, to string) {
		e.Stated = append(e.Stated, dossier.Fact{Name: "durability", Value: to})
	})
	for i, l := range e.Logs {
		add("id of session "+string(l.Session), func(e *dossier.Evidence, to string) { e.Logs[i].Session = session.ID(idOf(to)) })
		for n, raw := range l.Commits {
			var paths []string
			eachLeaf("", parsed(raw), nil, func(path string, _ any, _ func(any)) { paths = append(paths, path) })
			for _, p := range paths {
				add(fmt.Sprintf("%s of commit %d of %s", p, n+1, l.Session), func(e *dossier.Evidence, to string) {
					e.Logs[i].Commits[n] = changed(raw, p, to)
				})
			}
		}
	}
	for _, d := range slices.SortedFunc(maps.Keys(e.Blobs), func(a, b blob.Digest) int { return bytes.Compare(a[:], b[:]) }) {
		add("bytes of blob "+d.Short(), func(e *dossier.Evidence, to string) { e.Blobs[d] = []byte(to) })
		add("blob instead of "+d.Short(), func(e *dossier.Evidence, to string) {
			delete(e.Blobs, d)
			e.Blobs[blob.Sum([]byte(to))] = []byte(to)
		})
		add("reason of the lack of blob "+d.Short(), func(e *dossier.Evidence, to string) {
			delete(e.Blobs, d)
			e.Left[d] = to
		})
	}
	return out
}

func parsed(raw string) (tree any) {
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		panic(err) // it is a commit of a valid dossier
	}
	return tree
}

// eachLeaf visits the leaves of a tree of values.
func eachLeaf(path string, v any, set func(any), visit func(path string, v any, set func(any))) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			eachLeaf(path+"."+k, v[k], func(x any) { v[k] = x }, visit)
		}
	case []any:
		for i := range v {
			eachLeaf(fmt.Sprint(path, ".", i), v[i], func(x any) { v[i] = x }, visit)
		}
	default:
		visit(path, v, set)
	}
}

// changed returns a commit with another value of one leaf, of the same type.
func changed(raw, path, to string) string {
	tree := parsed(raw)
	eachLeaf("", tree, nil, func(p string, v any, set func(any)) {
		if p != path {
			return
		}
		switch v := v.(type) {
		case string:
			set(to)
			if len(v) == len(session.Hash{}.String()) {
				set(commitlog.HashOf([]byte(to)).String())
			}
		case json.Number:
			set(numberOf(to))
		case bool:
			set(!v)
		}
	})
	text, err := canonical.Marshal(tree)
	if err != nil {
		panic(err) // the replacement is one too
	}
	return text
}

func numberOf(s string) int {
	h := fnv.New32a()
	h.Write([]byte(s))
	return int(h.Sum32() % 100)
}

// idOf makes an id from any text.
func idOf(s string) string { return fmt.Sprintf("x%x", s[:min(len(s), 20)]) }

// FuzzVerify changes one field of a valid dossier, like a forger who also updates the form
// and the hash next to the field. With the heads from another source the document does
// not verify, unless the report lists the changed field as only stated.
func FuzzVerify(f *testing.F) {
	type sample struct {
		e      *dossier.Evidence
		doc    []byte
		o      *dossier.VerifyOptions
		stated []dossier.Fact
		fields []stepRef
	}
	var samples []sample
	for _, name := range []string{"fix.json", "branches.json"} {
		s := sample{doc: read(f, name), o: &dossier.VerifyOptions{Heads: map[session.ID]session.Hash{}}}
		var err error
		if s.e, err = dossier.Decode(s.doc); err != nil {
			f.Fatal(err)
		}
		r, err := dossier.Verify(s.doc, nil)
		must.Do(f, err)
		s.stated = r.Stated
		for _, c := range r.Sessions {
			s.o.Heads[c.Session] = c.Head
		}
		s.fields = fields(s.e)
		for i, fd := range s.fields {
			if i < 12 || i%20 == 0 || strings.Contains(fd.name, "blob") {
				f.Add(uint(len(samples)), uint(i), "lazy")
			}
		}
		samples = append(samples, s)
	}
	f.Fuzz(func(t *testing.T, which, at uint, to string) {
		s := samples[which%uint(len(samples))]
		fd := s.fields[at%uint(len(s.fields))]
		bad := clone(s.e)
		fd.set(bad, to)
		doc, err := bad.Encode()
		must.Do(t, err)
		r, err := dossier.Verify(doc, s.o)
		switch {
		case err != nil:
			failure(t, err)
			if bytes.Equal(doc, s.doc) {
				t.Errorf("nothing is changed: %v", err)
			}
		case fd.name == durability && to != journal.DefaultDurability:
			t.Errorf("the commits say %s, and %q as it is stated verifies", journal.DefaultDurability, to)
		case fd.name != durability && !bytes.Equal(doc, s.doc) && slices.Equal(r.Stated, s.stated):
			t.Errorf("%s is changed to %q, and the report is the same:\n%s", fd.name, to, r)
		}
	})
}

// FuzzDocument damages a document in one place, in each form. Verify fails with the kind of
// the damage, or the report lists the place as only stated.
func FuzzDocument(f *testing.F) {
	type document struct {
		doc    []byte
		stated []dossier.Fact
	}
	var docs []document
	for _, name := range []string{"fix.html", "fix.md", "fix.json"} {
		doc := read(f, name)
		r := must.Get(dossier.Verify(doc, nil))(f)
		for _, at := range []uint{0, 1, 60, 4000, 30000} {
			f.Add(uint(len(docs)), at, uint(1), []byte(`"`))
			f.Add(uint(len(docs)), at, uint(100), []byte{})
		}
		docs = append(docs, document{doc, r.Stated})
	}
	f.Fuzz(func(t *testing.T, which, at, out uint, in []byte) {
		d := docs[which%uint(len(docs))]
		at %= uint(len(d.doc)) + 1
		end := min(at+out%4096, uint(len(d.doc)))
		bad := slices.Concat(d.doc[:at], in, d.doc[end:])
		r, err := dossier.Verify(bad, nil)
		switch {
		case err != nil:
			failure(t, err)
		case !bytes.Equal(bad, d.doc) && slices.Equal(r.Stated, d.stated):
			t.Errorf("%q at %d is changed to %q, and the report is the same:\n%s", d.doc[at:end], at, in, r)
		}
	})
}
