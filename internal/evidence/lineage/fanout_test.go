package lineage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// fanOut records that the run opens branches and waits for them.
func (w *world) fanOut(s session.Session, path run.Path, need int, names ...string) (session.Session, []journal.Task) {
	w.t.Helper()
	f := journal.FanOut{
		Ancestors: []journal.Ancestor{{Run: w.run, Session: w.home.ID}}, Base: w.link(s), Path: path, Revision: "r1", Root: s.Root(), Run: w.run, Workflow: "fix",
	}
	wait := journal.Wait{Kind: run.WaitBranches, Path: journal.GatherPath(path), Need: need}
	for _, n := range names {
		id := w.mint.Child(w.home.Tenant, string(w.run), string(path.Child(n)))
		f.Branches = append(f.Branches, journal.FanOutBranch{Name: n, Session: id})
		wait.Branches = append(wait.Branches, id)
	}
	s = w.commit(w.home, s, path,
		w.done(journal.StepCompleted{Path: path, Kind: journal.StepFanOut, Summary: "opens branches"}), w.event(journal.KindFanOut, f),
		w.event(journal.KindRunWaiting, journal.RunWaiting{Attempt: w.attempt, For: []journal.Wait{wait}, Run: w.run}))
	return s, f.Tasks(w.home.Tenant)
}

// branch plays a branch's run, and then continues the previous run.
func (w *world) branch(task journal.Task, play func(session.Session)) {
	w.t.Helper()
	home, id, attempt := w.home, w.run, w.attempt
	defer func() { w.home, w.run, w.attempt = home, id, attempt }()
	b := task.Branch
	g, err := w.store.Claim(context.Background(), journal.Claim{
		Session: task.Session, Home: task.Session, Run: task.ID, Revision: "r1", Task: &task, Root: b.Root,
		Open: session.Opening{
			Kind: session.OpenFork, Name: b.Name, Parents: []session.Link{b.Base}, Run: string(b.Ancestors[len(b.Ancestors)-1].Run), Step: string(b.Path),
		},
	})
	w.must(err)
	w.home, w.run, w.attempt = task.Session, task.ID, g.Attempt
	play(g.Session)
}

// deliver delivers every signal that follows from the commits, until none has an effect.
func (w *world) deliver() {
	w.t.Helper()
	for changed := true; changed; {
		changed = false
		before := len(w.entries())
		for _, e := range w.entries() {
			work, err := journal.Followups(e, journal.Facts(e.Commit))
			w.must(err)
			for _, one := range work {
				if one.Signal == nil {
					continue
				}
				if err := w.store.Apply(context.Background(), *one.Signal); err != nil && !errors.Is(err, run.ErrState) {
					w.t.Fatal(err)
				}
			}
		}
		changed = len(w.entries()) > before
	}
}

// playBranches plays a run that opens three branches, one of which is slow. Two are
// enough; the run then asks a user, receives a message, and ends.
func playBranches(t testing.TB) *world {
	w := newWorld(t)
	s := w.start("release", "run-9", session.UserText("write the release notes"))
	s = w.model(s, "0", "editor", "three voices: terse, warm, formal")
	s, tasks := w.fanOut(s, "1", 2, "terse", "warm", "formal")
	values := map[string]session.Session{}
	for _, task := range tasks {
		w.branch(task, func(s session.Session) {
			path := task.Branch.Path.Child("0")
			s = w.model(s, path, task.Branch.Name, "a "+task.Branch.Name+" draft")
			values[task.Branch.Name] = s
			if task.Branch.Name == "formal" {
				return // still at work
			}
			w.end(s, run.Succeeded, "")
		})
	}
	w.deliver()
	w.reclaim()
	gathered := `[{"name":"terse","state":"succeeded"},{"name":"warm","state":"succeeded"},{"name":"formal","state":"cancelled"}]`
	w.commit(w.home, session.Session{}, "1.gather", w.done(journal.StepCompleted{Path: "1.gather", Kind: journal.StepGather, Value: gathered}),
		w.event(journal.KindBranchOutcomes, journal.BranchOutcomes{Run: w.run, Branches: []run.BranchOutcome{
			{Session: tasks[2].Session.ID, State: session.ClosedCancelled, Reason: "2 of 3 were enough"},
		}}))
	j, err := session.JoinOf(s, session.JoinAdopt, "it is short", 0, w.claimed(tasks[0].Session))
	w.must(err)
	w.commit(w.home, s, "2", session.JoinedEvent(j), w.done(journal.StepCompleted{Path: "2", Kind: journal.StepJoin, Name: session.JoinAdopt, Links: []session.Link{w.link(w.claimed(tasks[0].Session))}}),
		w.event(journal.KindBranchOutcomes, journal.BranchOutcomes{Run: w.run, Branches: []run.BranchOutcome{
			{Session: tasks[0].Session.ID, State: session.ClosedAdopted, Reason: "it is short"},
			{Session: tasks[1].Session.ID, State: session.ClosedRejected, Reason: "too warm"},
		}}))
	w.deliver()
	w.commit(w.home, session.Session{}, "3", w.event(journal.KindRunWaiting, journal.RunWaiting{Attempt: w.attempt, Run: w.run, For: []journal.Wait{
		{Kind: run.WaitApproval, Path: "3", Title: "Publish?", Due: w.now.Add(24 * time.Hour).UnixMilli()},
	}}))
	w.must(w.store.Apply(context.Background(), journal.Signal{To: w.home, Run: w.run, Received: &journal.SignalReceived{
		Kind: journal.Message, By: "bob", Run: w.run, Text: "mind the date",
	}}))
	return w
}

// answer approves the question of playBranches, and ends the run.
func (w *world) answer() {
	w.t.Helper()
	w.must(w.store.Apply(context.Background(), journal.Signal{To: w.home, Run: w.run, Received: &journal.SignalReceived{
		Kind: journal.Approve, By: "ana", Path: "3", Reason: "looks good", Run: w.run,
	}}))
	w.reclaim()
	s := w.claimed(w.home)
	s = w.commit(w.home, s, "3", w.done(journal.StepCompleted{Path: "3", Kind: journal.StepAwait, Name: "approval", Summary: "approved by ana"}))
	w.end(s, run.Succeeded, "")
}

// reclaim begins the next attempt of the run.
func (w *world) reclaim() {
	w.t.Helper()
	w.store = journal.NewStore(&w.log, &journal.StoreOptions{Incarnation: "node-b", Values: w.values, Now: func() time.Time {
		w.now = w.now.Add(10 * time.Millisecond)
		return w.now
	}})
	g, err := w.store.Claim(context.Background(), journal.Claim{Session: w.home, Home: w.home, Run: w.run, Revision: "r1"})
	w.must(err)
	if g.State != run.Running {
		w.t.Fatalf("%s is %s", w.run, g.State)
	}
	w.attempt = g.Attempt
}

func TestFanOut(t *testing.T) {
	w := playBranches(t)
	g := w.graph()
	branches := w.branches()
	var got []string
	for _, b := range branches {
		got = append(got, fmt.Sprintf("%s %s by %s %q, runs %v", b.Name, b.Disposition, b.By, b.Reason, len(b.Runs)))
		if !slices.Contains(b.Runs, run.ID(b.Key.ID)) || len(b.Parents) != 1 || b.Parents[0].Session != "release" {
			t.Errorf("branch %+v", b)
		}
		r, err := g.Run("acme", run.ID(b.Key.ID))
		w.must(err)
		want := &messages.Place{Run: "run-9", Session: "release", Step: "1.gather"}
		if diff := cmp.Diff(want, r.BranchOf); diff != "" || r.Branch != b.Name || r.Home != b.Key || !slices.Equal(r.Sessions, []session.ID{b.Key.ID}) {
			t.Errorf("run of branch %+v (-want +got):\n%s", r, diff)
		}
		if (b.Name == "formal") != (r.State == run.Cancelled) {
			t.Errorf("branch %s is %s", b.Name, r.State)
		}
	}
	want := []string{
		`formal cancelled by release "2 of 3 were enough", runs 2`, `terse adopted by release "it is short", runs 2`, `warm rejected by release "too warm", runs 2`,
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("branches (-want +got):\n%s", diff)
	}
	r, err := g.Run("acme", "run-9")
	w.must(err)
	if r.State != run.Waiting || len(r.Waits) != 1 || r.Waits[0].Title != "Publish?" || r.Waits[0].Step != "3" || r.Wake != 1 || r.Due.IsZero() || r.Attempt != 2 {
		t.Errorf("waiting run %+v", r)
	}
	if !slices.Equal(r.Sessions, []session.ID{"release"}) {
		t.Errorf("the run wrote to %v; its branches are runs of their own", r.Sessions)
	}
	for where, want := range map[string]string{
		"branch=no": "run-9", "parent=run-9 and name=warm": string(branches[1].Runs[0]), "state=waiting": "run-9", "agent=editor": "run-9", "name=warm": string(branches[1].Runs[0]), "state=cancelled": string(branches[2].Runs[0]),
	} {
		if ids := selected(t, g, w.now, where); !slices.Equal(ids, []string{want}) {
			t.Errorf("%s chooses %v, want %s", where, ids, want)
		}
	}
	if n := len(selected(t, g, w.now, "under=release")); n != 4 {
		t.Errorf("%d runs under the root, want 4", n)
	}
	w.answer()
	g = w.graph()
	if r, err = g.Run("acme", "run-9"); err != nil || r.State != run.Succeeded || r.Wake != 2 || len(r.Waits) != 0 || !r.Due.IsZero() {
		t.Errorf("ended run %+v (%v)", r, err)
	}
	tree := w.tree(nil)
	golden(t, "branches.tree.txt", []byte(tree))
	for l := range strings.SplitSeq(tree, "\n") {
		if len([]rune(l)) > 80 {
			t.Errorf("%d columns: %s", len([]rune(l)), l)
		}
	}
	p := w.picture(nil)
	golden(t, "branches.mmd", []byte(p.Mermaid()))
}

// TestManyBranches checks that many branches are folded, and shown on request.
func TestManyBranches(t *testing.T) {
	w := newWorld(t)
	s := w.start("many", "r1", session.UserText("go"))
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("b%d", i))
	}
	_, tasks := w.fanOut(s, "0", 0, names...)
	var ends []run.BranchOutcome
	for i, task := range tasks {
		w.branch(task, func(s session.Session) {
			w.end(w.model(s, task.Branch.Path.Child("0"), "a", "done"), run.Succeeded, "")
		})
		state := session.ClosedMerged
		if i == 33 {
			state = session.ClosedRejected
		}
		if i != 20 {
			ends = append(ends, run.BranchOutcome{Session: task.Session.ID, State: state})
		}
	}
	w.deliver()
	w.reclaim()
	w.commit(w.home, session.Session{}, "1", w.event(journal.KindBranchOutcomes, journal.BranchOutcomes{Branches: ends, Run: w.run}))
	tree := w.tree(nil)
	for _, want := range []string{"(b20)", "(b33)", "(b0)", "  ... 34 sessions more from here: 34 merged\n"} {
		if !strings.Contains(tree, want) {
			t.Errorf("%q is not in\n%s", want, tree)
		}
	}
	if n := strings.Count(tree, "fork of"); n != 6 {
		t.Errorf("%d branches are shown", n)
	}
	if tree = w.tree(&lineage.TreeOptions{Expand: true}); strings.Count(tree, "fork of") != 40 || strings.Contains(tree, "more") {
		t.Errorf("expanded:\n%s", tree)
	}
}

// TestFanOutOfAnEndedRun checks that branches without a recorded outcome end with the run.
func TestFanOutOfAnEndedRun(t *testing.T) {
	w := newWorld(t)
	s := w.start("s1", "r1", session.UserText("go"))
	_, tasks := w.fanOut(s, "0", 0, "a", "b")
	w.branch(tasks[0], func(s session.Session) { w.model(s, "0.a.0", "a", "working") })
	w.must(w.store.Apply(context.Background(), journal.Signal{To: w.home, Run: w.run, Cancel: &journal.CancelRequested{Run: w.run, By: "ana", Reason: "enough"}}))
	w.deliver()
	b := w.branches()
	if len(b) != 1 || b[0].Disposition != session.ClosedCancelled || b[0].By != "s1" {
		t.Errorf("branches %+v", b)
	}
}

// TestLateBranch checks that a branch whose run succeeded after the join had been decided
// is late and not cancelled.
func TestLateBranch(t *testing.T) {
	w := playBranches(t)
	records := w.records()
	var late session.Key
	for _, b := range w.branches() {
		if b.Name == "formal" {
			late = b.Key
		}
	}
	for i := range records {
		if r := &records[i]; r.Kind == messages.KindEnded && r.Key() == late {
			r.State = string(run.Succeeded)
		}
	}
	g := lineage.NewGraph()
	g.Add(records...)
	s, err := g.Session(late)
	w.must(err)
	if s.Disposition != lineage.LateEnd || s.Reason != "2 of 3 were enough" {
		t.Errorf("a branch that was late is %s %q", s.Disposition, s.Reason)
	}
	tree, err := g.Tree(w.home, nil)
	w.must(err)
	if !strings.Contains(tree, `LATE        "2 of 3 were enough"`) {
		t.Errorf("the tree does not say so:\n%s", tree)
	}
}

// TestBranchesOfTheSameMoment checks that branches follow their fan-out, even if they were
// opened in the millisecond of its commit.
func TestBranchesOfTheSameMoment(t *testing.T) {
	w := playBranches(t)
	records := w.records()
	for i := range records {
		records[i].Time = records[0].Time
	}
	g := lineage.NewGraph()
	g.Add(records...)
	text, err := g.Tree(w.home, nil)
	w.must(err)
	_, rest, found := strings.Cut(text, "fans out into 3 branches")
	if !found || strings.Count(rest, "fork of release at 2") != 3 {
		t.Errorf("the branches do not come after the fan-out:\n%s", text)
	}
}
