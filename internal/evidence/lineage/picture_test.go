package lineage_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func TestPicturesOfDemo(t *testing.T) {
	w := playDemo(t)
	tree := w.tree(nil)
	golden(t, "demo.tree.txt", []byte(tree))
	p := w.picture(&lineage.PictureOptions{Title: "run-7f3a: slug drops the last word", Link: func(id session.ID, from, to session.Version) string {
		return "#" + string(id[:8])
	}})
	golden(t, "demo.svg", []byte(p.SVG()))
	golden(t, "demo.mmd", []byte(p.Mermaid()))
	raw := must.Get(p.JSON())(t)
	golden(t, "demo.json", raw)
}

// wellFormed reads an SVG as XML: no text of a user may end or begin an element.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("SVG is not well formed: %v", err)
		}
		if e, ok := tok.(xml.StartElement); ok && !slices.Contains([]string{"svg", "style", "g", "rect", "path", "text", "title", "a"}, e.Name.Local) {
			t.Fatalf("SVG has an element <%s>", e.Name.Local)
		}
	}
}

// playFanOut plays branches of branches and merges some of them.
func playFanOut(t *testing.T) *world {
	w := newWorld(t)
	s := w.start("release", "run-9", session.UserText("write the release notes in four voices and keep the best two"))
	s = w.model(s, "0", "editor", "four voices: terse, warm, formal, funny")
	var branches []session.Session
	for i, voice := range []string{"terse", "warm", "formal", "funny"} {
		path := run.Path("1").Child(voice)
		b := w.fork(s, path, session.OpenFork, voice)
		b = w.model(b, path.Index(0), voice, "a draft")
		if i == 1 {
			for n := range 9 {
				b = w.model(b, path.Index(1+n), "reviewer", "round of review")
			}
			c := w.fork(b, path.Child("x"), session.OpenFork, "shorter")
			c = w.model(c, path.Child("x").Index(0), voice, "half as long")
			v, err := w.values.At(t.Context(), session.Ref{Key: b.Key()})
			w.must(err)
			b = w.join(v, session.JoinAdopt, path.Child("y"), "shorter reads better", c)
		}
		if i == 3 {
			w.reject(s, b, path.Child("z"), "the jokes are about customers, and long enough that the reason has to go on")
			continue
		}
		branches = append(branches, b)
	}
	d := w.fork(s, "2", session.OpenDetach, "")
	w.model(d, "2.0", "archivist", "kept for the record")
	v, err := w.values.At(t.Context(), session.Ref{Key: s.Key()})
	w.must(err)
	v = w.join(v, session.JoinSinceAncestor, "3", "both are needed", branches[0], branches[1])
	w.reject(v, branches[2], "4", "nobody asked for it")
	v = w.model(v, "5", "editor", "done")
	w.end(v, run.Failed, "publish: 403 from the forge")
	return w
}

func TestPicturesOfFanOut(t *testing.T) {
	w := playFanOut(t)
	tree := w.tree(nil)
	golden(t, "fanout.tree.txt", []byte(tree))
	p := w.picture(nil)
	golden(t, "fanout.svg", []byte(p.SVG()))
	golden(t, "fanout.mmd", []byte(p.Mermaid()))
	all := w.tree(&lineage.TreeOptions{All: true, Width: 100})
	golden(t, "fanout.all.txt", []byte(all))
	for _, text := range []string{tree, all} {
		for l := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); n > 100 || n > 80 && text == tree {
				t.Errorf("line of %d columns: %s", n, l)
			}
		}
	}
}

// TestTreeOfLongID checks that an id longer than the line leaves room for the text.
func TestTreeOfLongID(t *testing.T) {
	w := newWorld(t)
	s := w.start(session.ID(strings.Repeat("release_notes_", 4)), "run-9", session.UserText("write the release notes"))
	w.end(w.model(s, "0", "editor", "done"), run.Succeeded, "")
	tree := w.tree(&lineage.TreeOptions{Width: 40})
	if !strings.Contains(tree, "release_notes_") || !strings.Contains(tree, "editor") {
		t.Errorf("the tree tells neither the session nor its story:\n%s", tree)
	}
	for l := range strings.Lines(tree) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); n > 40 {
			t.Errorf("a line of %d columns: %s", n, l)
		}
	}
}

// TestNodesDoNotOverlap reads the positions of the cards from the SVG.
func TestNodesDoNotOverlap(t *testing.T) {
	type rect struct{ x, y, w, h float64 }
	card := regexp.MustCompile(`class="card" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"`)
	box := regexp.MustCompile(`viewBox="0 0 ([\d.]+) ([\d.]+)"`)
	check := func(name string, w *world) {
		p := w.picture(nil)
		svg := p.SVG()
		wellFormed(t, svg)
		num := func(s string) float64 {
			f := must.Get(strconv.ParseFloat(s, 64))(t)
			return f
		}
		size := box.FindStringSubmatch(svg)
		var rects []rect
		for _, m := range card.FindAllStringSubmatch(svg, -1) {
			r := rect{num(m[1]), num(m[2]), num(m[3]), num(m[4])}
			if r.x < 0 || r.y < 0 || r.x+r.w > num(size[1]) || r.y+r.h > num(size[2]) {
				t.Errorf("%s: card %v is outside of %v", name, r, size[1:])
			}
			for _, o := range rects {
				if r.x < o.x+o.w && o.x < r.x+r.w && r.y < o.y+o.h && o.y < r.y+r.h {
					t.Errorf("%s: cards %v and %v overlap", name, r, o)
				}
			}
			rects = append(rects, r)
		}
		if len(rects) != len(p.Nodes) || len(rects) == 0 {
			t.Errorf("%s: %d cards for %d nodes", name, len(rects), len(p.Nodes))
		}
	}
	check("fan-out", playFanOut(t))
	for seed := range uint64(20) {
		w, _ := playRandom(t, seed)
		check(fmt.Sprint("seed ", seed), w)
	}
}

// TestHostileTextStaysText puts markup and terminal sequences into all texts of users,
// models and tools.
func TestHostileTextStaysText(t *testing.T) {
	evil := "</text><script>alert(1)</script>\"'><a href=javascript:x>&\x1b[31m\u202e]] -->"
	w := newWorld(t)
	s := w.start("s1", "r1", session.UserText(evil))
	s = w.model(s, "0", evil, evil)
	b := w.fork(s, "1", session.OpenFork, evil)
	b = w.tool(b, "2", evil, evil, evil, evil, evil)
	w.reject(s, b, "3", evil)
	w.end(s, run.Failed, evil)
	g := w.graph()
	// Records of other programs are not trusted either.
	for _, r := range w.records() {
		r.Summary, r.Reason, r.Name, r.Agent, r.Tool, r.State, r.Via = evil, evil, evil, evil, evil, evil, evil
		r.Commit += 100
		g.Add(r)
	}
	p, err := g.Picture(w.home, &lineage.PictureOptions{Title: evil, Link: func(session.ID, session.Version, session.Version) string { return `#"><script>` }})
	w.must(err)
	svg := p.SVG()
	wellFormed(t, svg)
	mermaid := p.Mermaid()
	tree, err := g.Tree(w.home, &lineage.TreeOptions{All: true})
	w.must(err)
	for name, text := range map[string]string{"svg": svg, "mermaid": mermaid, "tree": tree} {
		if name != "tree" && (strings.Contains(text, "<script") || strings.Contains(text, "<a href=javascript")) {
			t.Errorf("%s carries markup:\n%s", name, text)
		}
		for _, r := range text {
			if r < 0x20 && r != '\n' || r == 0x202e {
				t.Fatalf("%s carries %U", name, r)
			}
		}
	}
	if n := strings.Count(mermaid, "\n"); n != len(p.Nodes)+len(p.Edges)+8 {
		t.Errorf("mermaid has %d lines for %d nodes and %d edges:\n%s", n, len(p.Nodes), len(p.Edges), mermaid)
	}
}

func TestPictureIsAcyclicAndBounded(t *testing.T) {
	for seed := range uint64(20) {
		w, _ := playRandom(t, 50+seed)
		p := w.picture(&lineage.PictureOptions{MaxSessions: 5, Lines: 3})
		order := map[string]int{}
		next, waits := map[string][]string{}, map[string]int{}
		for _, e := range p.Edges {
			next[e.From] = append(next[e.From], e.To)
			waits[e.To]++
		}
		var ready []string
		sessions := map[session.ID]bool{}
		for _, n := range p.Nodes {
			sessions[n.Session] = true
			if len(n.Lines) > 3 {
				t.Errorf("seed %d: %d lines", seed, len(n.Lines))
			}
			if waits[n.ID] == 0 {
				ready = append(ready, n.ID)
			}
		}
		for len(ready) > 0 {
			id := ready[0]
			ready = ready[1:]
			order[id] = len(order)
			for _, to := range next[id] {
				if waits[to]--; waits[to] == 0 {
					ready = append(ready, to)
				}
			}
		}
		if len(order) != len(p.Nodes) || len(sessions) > 5 {
			t.Errorf("seed %d: %d of %d nodes have an order, %d sessions", seed, len(order), len(p.Nodes), len(sessions))
		}
	}
}
