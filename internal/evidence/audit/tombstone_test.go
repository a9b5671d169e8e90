package audit_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/evidence/audit"
)

// archive ends each of the trees' logs with the commit that archives it.
func archive(w *world, file string, ids ...string) {
	for _, id := range ids {
		l := w.logs[id]
		l.commit(l.open("operator"), l.ev("session.archived", `{"by":"ana","file":"@f"}`, "@f", file))
	}
}

// purge removes the messages of a session before its last one, and returns them.
func purge(w *world, id string) (gone []audit.Message) {
	l := w.logs[id]
	subject := "rath.ev.1.0.acme." + id
	w.events = slices.DeleteFunc(w.events, func(m audit.Message) bool {
		if m.Subject != subject || m.Seq >= l.last {
			return false
		}
		gone = append(gone, m)
		return true
	})
	return gone
}

// again restores messages after a tombstone, all or the first n of them, and the tombstone
// last.
func again(w *world, id string, gone []audit.Message, n int, fresh bool) {
	l := w.logs[id]
	tomb := w.events[slices.IndexFunc(w.events, func(m audit.Message) bool { return m.Seq == l.last })]
	var blobs []audit.Message // they come before the commit that names them
	for _, m := range w.events {
		if m.Stream == "BLOB" {
			blobs = append(blobs, m)
		}
	}
	for _, m := range append(slices.Clone(gone), tomb)[:n] {
		w.events = append(w.events, blobs...)
		w.seqs["EV_1_0"]++
		m.Header = map[string][]string{
			"Nats-Expected-Last-Subject-Sequence": {fmt.Sprint(l.last)}, "Rath-Restored": {fmt.Sprint(l.seq)},
		}
		if fresh {
			m.Header["Rath-Fresh"] = []string{"1"}
		}
		m.Seq = w.seqs["EV_1_0"]
		w.events = append(w.events, m)
		l.last, l.token = m.Seq, m.Seq
	}
}

// tree lists the sessions of the run of forks.
var tree = []string{"s1", "s2", "s3"}

// purgedWorld returns a system whose first tree is archived and purged.
func purgedWorld(t *testing.T) (w *world, gone map[string][]audit.Message) {
	w = story(newWorld(t, nil))
	archive(w, "a.json", tree...)
	gone = map[string][]audit.Message{}
	for _, id := range tree {
		gone[id] = purge(w, id)
	}
	return w, gone
}

// TestArchives audits valid systems with archives.
func TestArchives(t *testing.T) {
	for name, edit := range map[string]func(t *testing.T) *world{
		"archived": func(t *testing.T) *world {
			w := story(newWorld(t, nil))
			archive(w, "a.json", tree...)
			return w
		},
		"purged": func(t *testing.T) *world { w, _ := purgedWorld(t); return w },
		"purged in part": func(t *testing.T) *world {
			w := story(newWorld(t, nil))
			archive(w, "a.json", tree...)
			purge(w, "s1")
			return w
		},
		"brought back": func(t *testing.T) *world {
			w, gone := purgedWorld(t)
			for _, id := range tree {
				again(w, id, gone[id], len(gone[id])+1, false)
				l := w.logs[id]
				l.commit(l.open("operator"), l.ev("session.restored", `{"by":"ana","reason":"needed"}`))
			}
			l := w.logs["s1"]
			l.commit(l.open("n1"), l.submit("again", ""), l.claim("again", "s1", "n1"))
			l.commit(in("again/end", l.end("again", "succeeded", "")))
			return w
		},
		"being brought back": func(t *testing.T) *world {
			w, gone := purgedWorld(t)
			again(w, "s1", gone["s1"], 3, false)
			return w
		},
		"let go again too late": func(t *testing.T) *world {
			w, _ := purgedWorld(t)
			l := w.logs["s1"]
			l.commit(l.open("operator"), l.ev("session.restored", `{"reason":"used"}`))
			return w
		},
		"let go again": func(t *testing.T) *world {
			w := story(newWorld(t, nil))
			archive(w, "a.json", tree...)
			for _, id := range tree {
				l := w.logs[id]
				l.commit(l.open("operator"), l.ev("session.restored", `{"reason":"used"}`))
			}
			return w
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			if r := edit(t).audited(); !r.OK() {
				t.Errorf("violations:\n%s", violations(r))
			}
		})
	}
}

// TestArchivedWitnesses checks that the audit does not report witnessed events of a purged
// tree, which are in its archive.
func TestArchivedWitnesses(t *testing.T) {
	told := append(slices.Clone(seenClients), `{"op":"control","tenant":"acme","run":"r1","verb":"approve","by":"ann"}`,
		`{"op":"control","tenant":"acme","session":"s1","verb":"message","by":"ann","text":"x"}`)
	witnesses := func(told ...string) func(*audit.Options) {
		return func(o *audit.Options) {
			o.Tools, o.Models, o.Clients = lines(seenTools...), lines(seenModels...), lines(told...)
		}
	}
	w, _ := purgedWorld(t)
	if r := w.audited(witnesses(told...)); !r.OK() {
		t.Errorf("violations:\n%s", violations(r))
	}
	w, _ = purgedWorld(t)
	r := w.audited(witnesses(`{"op":"commit","tenant":"acme","session":"s1","seq":99}`, `{"op":"submit","tenant":"acme","run":"r99"}`))
	if len(r.Violations) != 2 {
		t.Errorf("want a commit and a run that no archive holds, found:\n%s", violations(r))
	}
}

// TestBrokenArchives audits systems with one mistake in an archive.
func TestBrokenArchives(t *testing.T) {
	first := func(w *world, id string) *audit.Message {
		return &w.events[slices.IndexFunc(w.events, func(m audit.Message) bool { return m.Subject == "rath.ev.1.0.acme."+id })]
	}
	for _, c := range []struct {
		name, invariant, text string
		edit                  func(t *testing.T) *world
	}{
		{"purged without an archive", audit.Chain, "begins with commit 1", func(t *testing.T) *world {
			w := story(newWorld(t, nil))
			purge(w, "c1")
			return w
		}},
		{"purged up to the middle", audit.Chain, "begins with commit 1", func(t *testing.T) *world {
			w := story(newWorld(t, nil))
			archive(w, "a.json", tree...)
			left := 2
			w.events = slices.DeleteFunc(w.events, func(m audit.Message) bool {
				if m.Subject != "rath.ev.1.0.acme.s1" {
					return false
				}
				left--
				return left >= 0
			})
			return w
		}},
		{"a tombstone that names no archive", audit.Archives, "the name of an archive", func(t *testing.T) *world {
			w := story(newWorld(t, nil))
			archive(w, "", "s2")
			return w
		}},
		{"a tombstone that was never stored behind anything", audit.OneWriter, "of a message that is purged", func(t *testing.T) *world {
			w, _ := purgedWorld(t)
			first(w, "s1").Header = map[string][]string{"Nats-Expected-Last-Subject-Sequence": {"0"}}
			return w
		}},
		{"a run after the archive", audit.Archives, "nothing but session.restored", func(t *testing.T) *world {
			w := story(newWorld(t, nil))
			archive(w, "a.json", tree...)
			l := w.logs["s1"]
			l.commit(l.open("n1"), l.submit("late", ""), l.claim("late", "s1", "n1"))
			l.commit(in("late/end", l.end("late", "succeeded", "")))
			return w
		}},
		{"a run behind a tombstone", audit.Chain, "begins with commit 1", func(t *testing.T) *world {
			w, _ := purgedWorld(t)
			l := w.logs["s1"]
			l.commit(l.open("n1"), l.submit("late", ""), l.claim("late", "s1", "n1"))
			return w
		}},
		{"restored, but never archived", audit.Archives, "session.archived before", func(t *testing.T) *world {
			w := story(newWorld(t, nil))
			l := w.logs["s1"]
			l.commit(l.open("operator"), l.ev("session.restored", `{"reason":"x"}`))
			return w
		}},
		{"archived with an open run", audit.Archives, "no open run", func(t *testing.T) *world {
			w := story(newWorld(t, nil))
			l := w.log("o1", "o1")
			l.commit(l.open("n1"), l.ev("session.opened", `{"kind":"leaf"}`), l.submit("o", ""), l.claim("o", "o1", "n1"))
			archive(w, "a.json", "o1")
			return w
		}},
		{"other commits are brought back", audit.Chain, "want prev", func(t *testing.T) *world {
			w, gone := purgedWorld(t)
			gone["s1"][1].Data = []byte(strings.Replace(string(gone["s1"][1].Data), "I pay", "You pay", 1))
			again(w, "s1", gone["s1"], len(gone["s1"])+1, false)
			return w
		}},
		{"another session is brought back under its tombstone", audit.Archives, "the commit of the tombstone", func(t *testing.T) *world {
			w, gone := purgedWorld(t)
			// A log with the same number of commits that was never archived like this.
			tomb := first(w, "s2")
			data := strings.Replace(string(tomb.Data), `"by":"ana"`, `"by":"eve"`, 1)
			again(w, "s2", gone["s2"], len(gone["s2"])+1, false)
			w.events[len(w.events)-1].Data = []byte(data)
			return w
		}},
		{"copies that do not say so", audit.Archives, "header Rath-Restored", func(t *testing.T) *world {
			w, gone := purgedWorld(t)
			again(w, "s1", gone["s1"], len(gone["s1"])+1, false)
			for i := range w.events {
				w.events[i].Header = maps.Clone(w.events[i].Header)
				delete(w.events[i].Header, "Rath-Restored")
			}
			return w
		}},
		{"a commit that poses as a copy", audit.Archives, "no header Rath-Restored", func(t *testing.T) *world {
			w := story(newWorld(t, nil))
			first(w, "t1").Header["Rath-Restored"] = []string{"7"}
			return w
		}},
		{"a part of a tree is purged, and the rest goes on", audit.Archives, "this session is not archived", func(t *testing.T) *world {
			w := story(newWorld(t, nil))
			archive(w, "a.json", "s1")
			purge(w, "s1")
			return w
		}},
		{"a record of another history", audit.Lineage, "no such commit", func(t *testing.T) *world {
			w, _ := purgedWorld(t)
			change(w, "LINEAGE", 3, func(_ *audit.Message, o object) { o["commit"] = 700 })
			return w
		}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			r := c.edit(t).audited()
			if !slices.ContainsFunc(r.Violations, func(v audit.Violation) bool {
				return v.Invariant == c.invariant && strings.Contains(v.String(), c.text)
			}) {
				t.Errorf("not found: %s with %q; found:\n%s", c.invariant, c.text, violations(r))
			}
		})
	}
}
