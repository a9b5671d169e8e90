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

// TestLabelsAreThoseOfTheRecordsAsTheyCome checks that the graph and a reader of the record
// stream give the same labels, in the order of a fan-out and not of its first steps, and
// that a tree that omits some sessions keeps the labels of the others.
func TestLabelsAreThoseOfTheRecordsAsTheyCome(t *testing.T) {
	id := func(n int) session.ID { return session.ID(fmt.Sprintf("%08x%012d-1-%d", n+1, 0, n)) }
	var all []messages.Record
	commits := map[session.ID]uint64{}
	add := func(of session.ID, r messages.Record) {
		commits[of]++
		r.Session, r.Root, r.Tenant, r.Commit, r.Schema, r.Time = of, id(0), "acme", commits[of], lineage.Schema, int64(len(all)+1)
		all = append(all, r)
	}
	fork := func(of, from session.ID) {
		add(of, messages.Record{Kind: messages.KindForked, Via: session.OpenFork, Parents: []messages.Ref{{Session: from, Commit: commits[from]}}})
	}
	add(id(0), messages.Record{Kind: messages.KindOpened})
	fork(id(1), id(0))
	fork(id(2), id(0))
	fork(id(3), id(1)) // shown below the first branch, opened after the second
	var branches []messages.Ref
	for n := range 12 {
		branches = append(branches, messages.Ref{Session: id(4 + n)})
	}
	add(id(2), messages.Record{Kind: messages.KindFannedOut, Branches: branches})
	for n := range branches { // the last one begins first
		fork(branches[len(branches)-1-n].Session, id(2))
	}
	g, live := lineage.NewGraph(), lineage.Labels{}
	for i := range all {
		live.Add(&all[i])
	}
	if n := g.Add(all...); n != len(all) {
		t.Fatalf("%d of %d records are valid", n, len(all))
	}
	root := session.Key{Tenant: "acme", ID: id(0)}
	labels := must.Get(g.Labels(root))(t)
	for n := range 16 {
		want := fmt.Sprint("s", n+1)
		if got := live.Of(id(n)); got != want {
			t.Errorf("session %d is %s as the records come, want %s", n, got, want)
		}
		if got := labels.Of(id(n)); got != want {
			t.Errorf("session %d is %s in the graph, want %s", n, got, want)
		}
	}
	for _, o := range []*lineage.TreeOptions{{All: true}, {All: true, Expand: true}} {
		tree := must.Get(g.Tree(root, o))(t)
		shown := 0
		for n := 1; n < 16; n++ {
			i := strings.Index(tree, lineage.Short(id(n)))
			if i < 0 {
				continue
			}
			shown++
			row := tree[strings.LastIndexByte(tree[:i], '\n')+1 : i]
			if got := strings.Fields(row)[0]; got != labels.Of(id(n)) {
				t.Errorf("session %d is %s in a tree of %d:\n%s", n, got, shown, tree)
			}
		}
		if o.Expand != (shown == 15) {
			t.Errorf("expand %v shows %d branches:\n%s", o.Expand, shown, tree)
		}
	}
}
