package lineage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

func TestConflictsAreDecidedAlike(t *testing.T) {
	a := playDemo(t).records()[3]
	b := a
	b.Summary = "another story"
	x, y := lineage.NewGraph(), lineage.NewGraph()
	x.Add(a, b)
	y.Add(b, a)
	k := a.Key()
	if x.Records(k)[0].Summary != y.Records(k)[0].Summary {
		t.Error("the order decides which record wins")
	}

	// The same fact from another position in the stream: the first position counts.
	a.Partition, a.Seq = 1, 12
	again := a
	again.Seq = 7
	for _, g := range []*lineage.Graph{lineage.NewGraph(), lineage.NewGraph()} {
		g.Add(a, again)
		a, again = again, a
		if rs := g.Records(k); len(rs) != 1 || rs[0].Seq != 7 {
			t.Errorf("kept of records at 12 and at 7: %+v", rs)
		}
	}
}

func rec(id string, commit uint64, kind messages.Kind, parents ...messages.Ref) messages.Record {
	return messages.Record{
		Schema: 1, Tenant: "acme", Root: "s0", Session: session.ID(id), Commit: commit, Kind: kind, Parents: parents,
		Hash: fmt.Sprintf("%s-%d", id, commit), Summary: id, Time: int64(commit),
	}
}

// TestCycle checks that every walk ends if a session is its own ancestor.
func TestCycle(t *testing.T) {
	g := lineage.NewGraph()
	g.Add(
		rec("a", 1, messages.KindForked, messages.Ref{Session: "b", Commit: 2, Version: 1}),
		rec("b", 1, messages.KindOpened),
		rec("b", 2, messages.KindMerged, messages.Ref{Session: "a", Commit: 1, Version: 1}),
		rec("c", 1, messages.KindOpened),
	)
	for _, id := range []session.ID{"a", "b"} {
		k := session.Key{Tenant: "acme", ID: id}
		if _, err := g.Heads(k, 0); err != nil {
			t.Error(err)
		}
		if _, err := g.Tree(k, nil); err != nil {
			t.Error(err)
		}
		p := must.Get(g.Picture(k, nil))(t)
		wellFormed(t, p.SVG())
		_, _ = g.Why(k, 1) // the version does not exist, but the walk ends
	}
}

// TestForkChain walks a chain of forks that is too long for recursion.
func TestForkChain(t *testing.T) {
	const depth = 20_000
	g := lineage.NewGraph()
	g.Add(rec("s0", 1, messages.KindOpened))
	for i := 1; i < depth; i++ {
		r := rec(fmt.Sprint("s", i), 1, messages.KindForked, messages.Ref{Session: session.ID(fmt.Sprint("s", i-1)), Commit: 1})
		r.Via = session.OpenFork
		g.Add(r)
	}
	k := session.Key{Tenant: "acme", ID: "s0"}
	if all, err := g.Sessions("acme", "s0"); err != nil || len(all) != depth {
		t.Errorf("%d sessions, %v", len(all), err)
	}
	tree, err := g.Tree(k, nil)
	if err != nil || !strings.Contains(tree, "... 19,800 sessions more") {
		t.Errorf("tree of %d bytes, %v", len(tree), err)
	}
	p, err := g.Picture(k, nil)
	if err != nil || p.Omitted != depth-60 {
		t.Errorf("picture omits %d, %v", p.Omitted, err)
	}
}
