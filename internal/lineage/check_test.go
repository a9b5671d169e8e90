package lineage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/session"
)

func kindsOf(ps []lineage.Problem) []string {
	var out []string
	for _, p := range ps {
		out = append(out, p.Kind)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestCheckFindsWhatIsMissingOrWrong(t *testing.T) {
	w := playDemo(t)
	rs := w.records()
	with := func(change func([]lineage.Record) []lineage.Record) []lineage.Problem {
		g := lineage.NewGraph()
		g.Add(change(slices.Clone(rs))...)
		return g.Check("acme")
	}
	if p := with(func(rs []lineage.Record) []lineage.Record { return rs }); len(p) != 0 {
		t.Errorf("untouched: %v", p)
	}
	drop := func(match func(lineage.Record) bool) []lineage.Problem {
		return with(func(rs []lineage.Record) []lineage.Record { return slices.DeleteFunc(rs, match) })
	}
	tests := []struct {
		name string
		got  []lineage.Problem
		want string
	}{
		{"parent without records", drop(func(r lineage.Record) bool { return r.Session == w.home.ID }), lineage.MissingParent},
		{"commit without records", drop(func(r lineage.Record) bool { return r.Session == w.home.ID && r.Commit == 3 }), lineage.MissingCommits},
		{"beginning without records", drop(func(r lineage.Record) bool { return r.Session == w.home.ID && r.Commit < 3 }), lineage.MissingCommits},
		{"another commit under the number", with(func(rs []lineage.Record) []lineage.Record {
			for i := range rs {
				if rs[i].Kind == lineage.Forked {
					rs[i].Parents = []lineage.Ref{{Session: rs[i].Parents[0].Session, Commit: rs[i].Parents[0].Commit, Hash: strings.Repeat("0", 64)}}
				}
			}
			return rs
		}), lineage.OtherHash},
		{"two tellings of one event", with(func(rs []lineage.Record) []lineage.Record {
			r := rs[3]
			r.Summary = "something else"
			return append(rs, r)
		}), lineage.Conflict},
	}
	for _, tt := range tests {
		if got := kindsOf(tt.got); !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%s: %v, want %s: %v", tt.name, got, tt.want, tt.got)
		}
	}
	for _, p := range tests[0].got {
		if !strings.Contains(p.Text, string(w.home.ID)) {
			t.Errorf("the problem does not name the parent: %s", p.Text)
		}
	}
}

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
	moved := a
	moved.Partition, moved.Seq = 3, 99 // the same fact, read from another place
	z := lineage.NewGraph()
	z.Add(a, moved)
	if p := z.Check("acme"); slices.Contains(kindsOf(p), lineage.Conflict) {
		t.Errorf("the same fact twice is a conflict: %v", p)
	}
}

func rec(id string, commit uint64, kind lineage.Kind, parents ...lineage.Ref) lineage.Record {
	return lineage.Record{
		Schema: 1, Tenant: "acme", Root: "s0", Session: session.ID(id), Commit: commit, Kind: kind, Parents: parents,
		Hash: fmt.Sprintf("%s-%d", id, commit), Summary: id, Time: int64(commit),
	}
}

func TestCycle(t *testing.T) {
	g := lineage.NewGraph()
	g.Add(
		rec("a", 1, lineage.Forked, lineage.Ref{Session: "b", Commit: 2, Version: 1}),
		rec("b", 1, lineage.Opened),
		rec("b", 2, lineage.Merged, lineage.Ref{Session: "a", Commit: 1, Version: 1}),
		rec("c", 1, lineage.Opened),
	)
	var on []session.ID
	for _, p := range g.Check("acme") {
		if p.Kind == lineage.Cycle {
			on = append(on, p.Session.ID)
		}
	}
	if !slices.Equal(on, []session.ID{"a", "b"}) {
		t.Errorf("on the cycle: %v, want a and b", on)
	}
	for _, id := range []session.ID{"a", "b"} { // nothing may hang on it
		k := session.Key{Tenant: "acme", ID: id}
		if _, err := g.Ancestors(k, 0); err != nil {
			t.Error(err)
		}
		if _, err := g.Heads(k, 0); err != nil {
			t.Error(err)
		}
		if _, err := g.Tree(k, nil); err != nil {
			t.Error(err)
		}
		p, err := g.Picture(k, nil)
		if err != nil {
			t.Fatal(err)
		}
		wellFormed(t, p.SVG())
		if _, err := g.Why(k, 1); err != nil {
			continue // there is no such version, but the walk ended
		}
	}
	// Forked and merged back is no cycle.
	if p := playDemo(t).graph().Check("acme"); len(p) != 0 {
		t.Errorf("a branch that came back: %v", p)
	}
}

// TestForkChain holds for chains that no call stack would: each session is a
// fork of the one before it.
func TestForkChain(t *testing.T) {
	const depth = 20_000
	g := lineage.NewGraph()
	g.Add(rec("s0", 1, lineage.Opened))
	for i := 1; i < depth; i++ {
		r := rec(fmt.Sprint("s", i), 1, lineage.Forked, lineage.Ref{Session: session.ID(fmt.Sprint("s", i-1)), Commit: 1})
		r.Via = session.OpenFork
		g.Add(r)
	}
	k := session.Key{Tenant: "acme", ID: "s0"}
	if p := g.Check("acme"); len(p) != 0 {
		t.Fatalf("%d problems, first %v", len(p), p[0])
	}
	if d, err := g.Descendants(k); err != nil || len(d) != depth-1 {
		t.Errorf("%d descendants, %v", len(d), err)
	}
	if a, err := g.Ancestors(session.Key{Tenant: "acme", ID: session.ID(fmt.Sprint("s", depth-1))}, 0); err != nil || len(a) != depth-1 {
		t.Errorf("%d ancestors, %v", len(a), err)
	}
	tree, err := g.Tree(k, nil)
	if err != nil || !strings.Contains(tree, "... 19800 sessions more") {
		t.Errorf("tree of %d bytes, %v", len(tree), err)
	}
	p, err := g.Picture(k, nil)
	if err != nil || p.Omitted != depth-60 {
		t.Errorf("picture omits %d, %v", p.Omitted, err)
	}
}
