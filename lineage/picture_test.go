package lineage_test

import (
	"testing"

	"github.com/rathcluster/rath/lineage"
	"github.com/rathcluster/rath/session"
)

func TestPicturesOfDemo(t *testing.T) {
	w := playDemo(t)
	g := w.graph()
	tree, err := g.Tree(w.home, nil)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "demo.tree.txt", []byte(tree))
	p, err := g.Picture(w.home, &lineage.PictureOptions{Title: "run-7f3a: slug drops the last word", Link: func(id session.ID, from, to session.Version) string {
		return "#" + string(id[:8])
	}})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "demo.svg", []byte(p.SVG()))
	golden(t, "demo.mmd", []byte(p.Mermaid()))
	raw, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "demo.json", raw)
}
