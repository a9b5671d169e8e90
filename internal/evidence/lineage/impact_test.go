package lineage_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// told formats an impact in short.
func told(i lineage.Impact) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", i.Record.Summary)
	for _, r := range i.Sessions {
		fmt.Fprintf(&b, "session %s from %d %s %s\n", lineage.Short(r.Session), r.From, r.Via, lineage.Short(r.Parent))
	}
	for _, s := range i.Steps {
		fmt.Fprintf(&b, "step %s %s %s\n", lineage.Short(s.Session), s.Step, s.Summary)
	}
	for _, r := range i.Runs {
		fmt.Fprintf(&b, "run %s %s from %s, %d steps\n", lineage.Short(session.ID(r.Run)), r.State, r.First, r.Steps)
	}
	for _, f := range i.Files {
		fmt.Fprintf(&b, "files %s %s\n", f.Step, f.Tool)
	}
	for _, w := range i.Written {
		fmt.Fprintf(&b, "wrote %s\n", w.Summary)
	}
	for _, w := range i.Recalls {
		fmt.Fprintf(&b, "recalled in %s\n", w.Session)
	}
	return b.String()
}

func TestImpact(t *testing.T) {
	w := playDemo(t)
	g := w.graph()
	d := w.branches()
	first, second := lineage.Short(d[0].Key.ID), lineage.Short(d[1].Key.ID)
	home := lineage.Short(w.home.ID)
	check := func(name string, got lineage.Impact, want ...string) {
		t.Helper()
		if diff := cmp.Diff(strings.Join(want, "\n")+"\n", told(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	// The edit on the rejected branch has no further impact.
	i, err := g.ImpactOfStep("acme", w.run, "4.0")
	w.must(err)
	check("the first edit", i, "coder edits slug.sh +1 -1",
		"session "+first+" from 5  ",
		"step "+first+" 5 sandbox sh test.sh: 2 of 3 green, exit 1",
		`step `+first+` 6 verifier says "reject: breaks empty input"`,
		"run run-7f3a succeeded from 5, 2 steps",
		"files 4.0 edit_file")
	// The edit on the other branch was merged into the trunk.
	i, err = g.ImpactOfStep("acme", w.run, "10.0")
	w.must(err)
	check("the second edit", i, "coder edits slug.sh +3 -1",
		"session "+second+" from 5  ",
		"session "+home+" from 4 adopted "+second,
		"step "+second+" 11 sandbox sh test.sh: 3 of 3 green, exit 0",
		`step `+second+` 12 verifier says "accept"`,
		"run run-7f3a succeeded from 11, 2 steps",
		"files 10.0 edit_file")
	// The planner's answer is in both branches, and affects all later steps.
	k := w.home
	i, err = g.Impact(k, 3)
	w.must(err)
	if len(i.Sessions) != 3 || i.Sessions[0].Session != k.ID || i.Sessions[0].Via != "" || len(i.Files) != 2 || len(i.Written) != 1 {
		t.Errorf("the plan:\n%s", told(i))
	}
	// Seen from a fork it is the same.
	again, err := g.Impact(d[1].Key, 3)
	w.must(err)
	if told(i) != told(again) {
		t.Errorf("seen from a branch:\n%s\nwant\n%s", told(again), told(i))
	}
	// The last chunk of the trunk before the forks is not in a fork of an earlier
	// version, and the join affects only the end.
	if i, err = g.Impact(k, 4); err != nil || len(i.Sessions) != 1 || len(i.Steps) != 0 {
		t.Errorf("the join: %v\n%s", err, told(i))
	}
	for _, bad := range []error{
		second2(g.Impact(k, 99)), second2(g.Impact(session.Key{Tenant: "globex", ID: k.ID}, 1)),
		second2(g.ImpactOfStep("acme", w.run, "77")), second2(g.ImpactOfStep("acme", "nobody", "1")), second2(g.ImpactOfStep("globex", w.run, "1")),
	} {
		if !errors.Is(bad, lineage.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", bad)
		}
	}
}

func second2[T any](_ T, err error) error { return err }

// TestImpactOnOtherRuns follows forks by later runs, and memories.
func TestImpactOnOtherRuns(t *testing.T) {
	w := playFleet(t) // run-2 works on a fork of the demo's trunk
	w.end(w.claimed(w.home), run.Succeeded, "")
	s := w.start("reader", "run-4", session.UserText("what do we know?"))
	s = w.step(s, journal.StepCompleted{Path: "0", Kind: journal.StepRecall, Name: "", Summary: "recalls 1 note"})
	w.end(s, run.Succeeded, "")
	g := w.graph()
	i, err := g.Impact(w.demo(g), 3)
	w.must(err)
	var runs []string
	for _, r := range i.Runs {
		runs = append(runs, string(r.Run))
	}
	if !slices.Equal(runs, []string{"run-7f3a", "run-2"}) {
		t.Errorf("runs %v", runs)
	}
	if len(i.Recalls) != 1 || i.Recalls[0].Session != "reader" {
		t.Errorf("recalls %+v", i.Recalls)
	}
	if i, err = g.Impact(session.Key{Tenant: "acme", ID: "again"}, 5); err != nil || len(i.Runs) != 1 || len(i.Recalls) != 0 || i.Runs[0].Run != "run-2" {
		t.Errorf("of the fork's own: %v\n%s", err, told(i))
	}
}

func TestImpactOfBranches(t *testing.T) {
	w := playBranches(t)
	w.answer()
	g := w.graph()
	i, err := g.Impact(w.home, 2)
	w.must(err)
	if len(i.Sessions) != 4 || len(i.Runs) != 4 {
		t.Errorf("what led to a fan-out:\n%s", told(i))
	}
	var vias []string
	for _, s := range i.Sessions {
		vias = append(vias, string(s.Via))
	}
	if !slices.Equal(vias, []string{"", "forked", "forked", "forked"}) {
		t.Errorf("ways %v", vias)
	}
	branches := w.branches()
	for n, want := range map[int]int{0: 2, 1: 1, 2: 1} { // the first was adopted
		if i, err := g.Impact(branches[n].Key, 3); err != nil || len(i.Sessions) != want {
			t.Errorf("branch %s reaches %d sessions (%v), want %d", branches[n].Name, len(i.Sessions), err, want)
		}
	}
}

func TestStepAndCall(t *testing.T) {
	w := playDemo(t)
	g := w.graph()
	m, err := g.Step("acme", w.run, "10.0")
	w.must(err)
	if m.Tool != "edit_file" || m.Agent != "coder" || m.Asked == nil || m.Asked.Step != "10" {
		t.Errorf("step 10.0 was made by %+v", m)
	}
	c := g.Calls("acme", "c3")
	if len(c) != 1 || c[0].Step != "10.0" || c[0].Version == 0 {
		t.Errorf("call c3: %+v", c)
	}
	if c := g.Calls("globex", "c3"); len(c) != 0 {
		t.Errorf("another tenant's call: %+v", c)
	}
	o, err := g.Opening(w.home)
	if err != nil || o.Kind != messages.KindOpened {
		t.Errorf("opening %+v, %v", o, err)
	}
}
