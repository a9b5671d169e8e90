package lineage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// playRandom plays a workflow of random steps: models, tools, forks of forks,
// copies, joins and rejections, over a few runs.
func playRandom(t testing.TB, seed uint64) (*world, []session.Session) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	var all []session.Session
	home := w.mint.ID(fmt.Sprintf("%020x", seed))
	s := w.start(home, "run-0", session.SystemText("be good"), session.UserText("go"))
	for n := range 1 + r.IntN(3) {
		if n > 0 {
			s = w.start(home, run.ID(fmt.Sprintf("run-%d", n)))
		}
		live := []session.Session{s} // 0 is the home
		parent := map[session.Key]int{}
		for step := range 5 + r.IntN(20) {
			path := run.Path(fmt.Sprint(step))
			i := r.IntN(len(live))
			at := live[i]
			switch op := r.IntN(12); {
			case op < 4:
				live[i] = w.model(at, path, []string{"coder", "critic"}[r.IntN(2)], "words")
			case op < 7:
				after := ""
				if r.IntN(2) == 0 {
					after = fmt.Sprint(seed, n, step)
				}
				live[i] = w.tool(at, path.Index(0), "coder", "edit", "c", "edits", after)
			case op < 10 && len(live) < 8:
				kind := []string{session.OpenFork, session.OpenFork, session.OpenImplicit, session.OpenDetach}[r.IntN(4)]
				b := w.fork(at, path, kind, "")
				v, err := w.values.At(context.Background(), session.Ref{Key: at.Key()})
				w.must(err)
				live[i] = v
				if kind == session.OpenDetach {
					all = append(all, w.model(b, path.Child("d"), "solo", "apart"))
					continue
				}
				parent[b.Key()] = i
				live = append(live, b)
			case len(live) > 1:
				// The last branch ends; others may have been forked from it.
				b := live[len(live)-1]
				trunk := live[parent[b.Key()]]
				live = live[:len(live)-1]
				if r.IntN(2) == 0 && trunk.Key() != b.Key() {
					policy := []string{session.JoinAdopt, session.JoinSinceAncestor}[r.IntN(2)]
					if _, err := session.JoinOf(trunk, policy, "", 0, b); err == nil {
						live[parent[b.Key()]] = w.join(trunk, policy, path, "better", b)
						all = append(all, b)
						continue
					}
				}
				w.reject(trunk, b, path, "worse")
				all = append(all, b)
			}
		}
		for i := len(live) - 1; i > 0; i-- {
			w.reject(live[0], live[i], run.Path(fmt.Sprintf("end.%d", i)), "left over")
			all = append(all, live[i])
		}
		s = live[0]
		w.end(s, run.Succeeded, "")
	}
	return w, append(all, s)
}

// answers returns all answers of a graph about the sessions of a world.
func (w *world) answers(g *lineage.Graph) string {
	w.t.Helper()
	var b strings.Builder
	for _, k := range w.log.Keys() {
		s, err := g.Session(k)
		fmt.Fprintln(&b, s, err)
		tree, err := g.Sessions("acme", k.ID)
		fmt.Fprintln(&b, tree, err)
		heads, err := g.Heads(k, 0)
		fmt.Fprintln(&b, heads, err)
		for v := session.Version(1); v <= s.Version; v++ {
			m, err := g.Why(k, v)
			m.Asked, m.Recorded = nil, nil
			fmt.Fprintln(&b, m, err)
		}
	}
	fmt.Fprintf(&b, "%+v\n", g.Select("acme", nil, w.now))
	tree, err := g.Tree(w.home, nil)
	fmt.Fprintln(&b, tree, err)
	p, err := g.Picture(w.home, nil)
	w.must(err)
	b.WriteString(p.SVG() + p.Mermaid())
	return b.String()
}

func TestAnyOrderGivesTheSameGraph(t *testing.T) {
	for seed := range uint64(25) {
		w, _ := playRandom(t, seed)
		rs := w.records()
		g := lineage.NewGraph()
		if n := g.Add(rs...); n != len(rs) {
			t.Fatalf("seed %d: %d of %d records were new", seed, n, len(rs))
		}
		want := w.answers(g)
		at := map[messages.Ref]bool{}
		for i := range rs {
			at[messages.Ref{Session: rs[i].Session, Commit: rs[i].Commit, Hash: rs[i].Hash}] = true
		}
		for i := range rs {
			for _, p := range rs[i].Parents {
				if !at[messages.Ref{Session: p.Session, Commit: p.Commit, Hash: p.Hash}] {
					t.Errorf("seed %d: %s comes from %+v, of which there is no record", seed, rs[i].Key(), p)
				}
			}
		}
		r := rand.New(rand.NewPCG(seed, 2))
		for range 2 {
			r.Shuffle(len(rs), func(i, j int) { rs[i], rs[j] = rs[j], rs[i] })
			g := lineage.NewGraph()
			half := len(rs) / 2
			g.Add(rs[:half]...)
			w.answers(g) // earlier queries must not change later answers
			g.Add(rs[half/2:]...)
			g.Add(rs...)
			if got := w.answers(g); got != want {
				t.Fatalf("seed %d: another order gives another graph:\n%s", seed, cmp.Diff(want, got))
			}
		}
	}
}

// TestGraphAgreesWithTheLogs compares the graph with the authoritative folds: versions,
// makers, parents, usage and the states of runs.
func TestGraphAgreesWithTheLogs(t *testing.T) {
	for seed := range uint64(25) {
		w, sessions := playRandom(t, 100+seed)
		g := w.graph()
		for _, want := range sessions {
			v, err := w.values.At(context.Background(), session.Ref{Key: want.Key()})
			w.must(err)
			s, err := g.Session(v.Key())
			w.must(err)
			if s.Version != v.Ref().Version || s.Root != v.Root() {
				t.Errorf("seed %d: %s at %d of root %s, the log says %d of %s", seed, v.Key(), s.Version, s.Root, v.Ref().Version, v.Root())
			}
			if got, want := s.Disposition, v.Closing().State; got != want && (want != "" || got != lineage.Open) {
				t.Errorf("seed %d: %s is %s, the log says %q", seed, v.Key(), got, want)
			}
			var parents []messages.Ref
			for _, r := range g.Records(v.Key()) {
				parents = append(parents, r.Parents...)
			}
			for l := range v.Parents() {
				if !slices.ContainsFunc(parents, func(r messages.Ref) bool { return r.Session == l.ID }) {
					t.Errorf("seed %d: %s is no parent of %s: %v", seed, l.ID, v.Key(), parents)
				}
			}
			for _, c := range v.Chunks() {
				o := c.Origin()
				m, err := g.Why(c.Ref().Key, c.Ref().Version)
				w.must(err)
				if m.Session != c.Ref().ID || m.Agent != o.Agent || string(m.Run) != o.Run || string(m.Step) != o.Step || m.Tool != c.Name() {
					t.Errorf("seed %d: %s was made by %+v, the row says %+v", seed, c.Ref(), m, o)
				}
			}
			// The same chunk seen from a fork leads to its origin.
			if base, ok := v.At(0); ok && v.Opening().Kind == session.OpenFork {
				m, err := g.Why(v.Key(), base.Ref().Version)
				if err != nil || m.Session != base.Ref().ID {
					t.Errorf("seed %d: from the fork, version %d was made in %s (%v), want %s", seed, base.Ref().Version, m.Session, err, base.Ref().ID)
				}
			}
			if head := v.Placement().Head; !head.IsZero() {
				heads, err := g.Heads(v.Key(), 0)
				w.must(err)
				if len(heads) == 0 || heads[len(heads)-1].Head != head.String() {
					t.Errorf("seed %d: heads of %s end with %v, the session is at %s", seed, v.Key(), heads, head)
				}
				for i := 1; i < len(heads); i++ {
					if heads[i].HeadFrom != heads[i-1].Head {
						t.Errorf("seed %d: heads of %s break between %v and %v", seed, v.Key(), heads[i-1], heads[i])
					}
				}
			}
		}
		book, err := journal.LoadStateMachine(context.Background(), &w.log, w.values, w.home, "reader")
		w.must(err)
		for _, rec := range book.RunState().Runs() {
			got, err := g.Run("acme", rec.ID)
			w.must(err)
			if got.State != rec.State || got.Attempt != rec.Attempt || got.Home != rec.Home || !got.Started.Equal(rec.Started) ||
				!got.Ended.Equal(rec.EndedAt) || got.Usage != rec.Ended.Usage || got.Workflow != rec.Task.Workflow {
				t.Errorf("seed %d: run %+v, the log says %+v", seed, got, rec)
			}
		}
	}
}

// TestRunStates follows a run through parking, review and resolution.
func TestRunStates(t *testing.T) {
	w := newWorld(t)
	s := w.start("s1", "r1", session.UserText("deploy"))
	state := func(want run.State) lineage.Run {
		t.Helper()
		r, err := w.graph().Run("acme", "r1")
		w.must(err)
		if r.State != want {
			t.Fatalf("state %s, want %s", r.State, want)
		}
		return r
	}
	if r := state(run.Running); r.Node != "node-a" {
		t.Errorf("it runs on node %q, want node-a", r.Node)
	}
	w.commit(w.home, session.Session{}, "", w.event(journal.KindReleased, journal.Released{Attempt: 1, Reason: "shutdown", Run: "r1", Workflow: "fix"}))
	state(run.Queued)
	w.must(w.store.Apply(context.Background(), journal.Signal{To: w.home, Quarantine: &journal.Quarantined{By: "ana", Reason: "odd"}}))
	if r := state(run.Queued); r.Quarantine != "odd" {
		t.Errorf("quarantine %q", r.Quarantine)
	}
	if got := selected(t, w.graph(), w.now, "quarantined=yes"); len(got) != 1 {
		t.Errorf("quarantined runs: %v", got)
	}
	w.must(w.store.Apply(context.Background(), journal.Signal{To: w.home, Quarantine: &journal.Quarantined{By: "ana", Reason: "it was not", Released: true}}))
	if r := state(run.Queued); r.Quarantine != "" {
		t.Errorf("quarantine %q after the release", r.Quarantine)
	}
	w.store = journal.NewStore(&w.log, &journal.StoreOptions{Incarnation: "node-b", Values: w.values})
	g, err := w.store.Claim(context.Background(), journal.Claim{Session: w.home, Home: w.home, Run: "r1"})
	w.must(err)
	w.attempt = g.Attempt
	if r := state(run.Running); r.Attempt != 2 {
		t.Errorf("attempt %d, want 2", r.Attempt)
	}
	w.commit(s.Key(), session.Session{}, "3", w.event(journal.KindStepStarted, journal.StepStarted{Attempt: 2, Call: "r1/3", Name: "deploy", Path: "3", Run: "r1"}))
	w.commit(w.home, session.Session{}, "", w.event(journal.KindReview, journal.Review{Attempt: 2, Code: run.CodeReview, Name: "deploy", Path: "3", Reason: "cut off", Run: "r1"}))
	if r := state(run.NeedsReview); r.Reason != "cut off" || r.Code != run.CodeReview {
		t.Errorf("review says %q %q", r.Code, r.Reason)
	}
	w.must(w.store.Apply(context.Background(), journal.Signal{To: w.home, Run: "r1", Resolve: &journal.Resolved{By: "ann", Decision: run.Fail, Reason: "not worth it"}}))
	r := state(run.Failed)
	if r.Reason != "not worth it" || r.Ended.IsZero() {
		t.Errorf("end says %+v", r)
	}
	if got := selected(t, w.graph(), w.now, "state in (running, queued)"); len(got) != 0 {
		t.Errorf("open runs: %v", got)
	}
	tree := w.tree(nil)
	for _, want := range []string{"run         parks: shutdown", "resumes, attempt 2", "needs review: cut off", `ann         decides: fail "not worth it"`, "failed: not worth it"} {
		if !strings.Contains(tree, want) {
			t.Errorf("the tree does not tell %q:\n%s", want, tree)
		}
	}
}

func TestHeadsFollowAdoptedFiles(t *testing.T) {
	w := playDemo(t)
	g := w.graph()
	heads, err := g.Heads(w.home, 0)
	w.must(err)
	var got []string
	for _, h := range heads {
		got = append(got, fmt.Sprintf("%s %s %s->%s", h.Kind, h.Agent, short(h.HeadFrom), short(h.Head)))
	}
	before, second := short(blob.Sum([]byte("before")).String()), short(blob.Sum([]byte("second")).String())
	want := []string{"placed  ->" + before, "tool coder " + before + "->" + second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("heads of the home (-want +got):\n%s", diff)
	}
	if heads[1].Step != "10.0" || heads[1].Tool != "edit_file" || heads[1].Run != "run-7f3a" || heads[1].Call != "c3" {
		t.Errorf("the change was made by %+v", heads[1])
	}
	early, err := g.Heads(w.home, 2)
	w.must(err)
	if len(early) != 1 {
		t.Errorf("at version 2: %v, want the copy alone", early)
	}
}

func short(s string) string { return s[:min(len(s), 6)] }

func TestBranchesTellTheirEnd(t *testing.T) {
	w := playDemo(t)
	branches := w.branches()
	if len(branches) != 2 {
		t.Fatalf("%d branches, want 2", len(branches))
	}
	if b := branches[0]; b.Disposition != session.ClosedRejected || b.Reason != "breaks empty input" || b.By != w.home.ID {
		t.Errorf("first branch: %+v", b)
	}
	if b := branches[1]; b.Disposition != session.ClosedAdopted || b.Reason != "all tests pass" || b.Name != "second try" {
		t.Errorf("second branch: %+v", b)
	}
}

// TestToolRowOfALaterCommit covers a result that had to wait for the previous one: the
// step's record and its row are in different commits.
func TestToolRowOfALaterCommit(t *testing.T) {
	w := newWorld(t)
	s := w.start("s1", "r1", session.UserText("go"))
	s = w.model(s, "0", "coder", "", call("a", "grep"), call("b", "cat"))
	w.commit(s.Key(), s, "0.1", w.done(journal.StepCompleted{Path: "0.1", Kind: journal.StepTool, Name: "cat", Call: "r1/0.1", Value: `{}`, Summary: "reads b"}))
	row := func(path run.Path, id, name string) session.Event {
		return session.ChunkEvent(session.Result(id, name, `{}`, false).Of(session.Origin{Run: "r1", Step: string(path)}))
	}
	s = w.commit(s.Key(), s, "0.0", row("0.0", "a", "grep"), row("0.1", "b", "cat"),
		w.done(journal.StepCompleted{Path: "0.0", Kind: journal.StepTool, Name: "grep", Call: "r1/0.0", Row: true, Summary: "greps a"}))
	g := w.graph()
	for v, want := range map[session.Version]string{3: "grep r1/0.0", 4: "cat r1/0.1"} {
		m, err := g.Why(s.Key(), v)
		w.must(err)
		if got := m.Tool + " " + m.Call; got != want || m.Agent != "coder" || m.Model != "scripted" || m.Asked == nil || m.Asked.Step != "0" || m.Attempt != 1 {
			t.Errorf("version %d: %q by %q on %q, asked by %+v; want %q", v, got, m.Agent, m.Model, m.Asked, want)
		}
	}
	tree, err := g.Tree(s.Key(), nil)
	w.must(err)
	if !strings.Contains(tree, "coder       reads b") || !strings.Contains(tree, "coder       greps a") || strings.Contains(tree, "calls") {
		t.Errorf("tree:\n%s", tree)
	}
}

// TestTreeSaysHitRate checks that the first line of a branch shows the share of its own
// input from a cache.
func TestTreeSaysHitRate(t *testing.T) {
	w := newWorld(t)
	s := w.model(w.start("s1", "r1", session.UserText("go")), "0", "coder", "first")
	for i, read := range []int64{0, 450} {
		path := run.Path(fmt.Sprint(i + 1))
		b := w.fork(s, path, session.OpenFork, fmt.Sprint("b", i))
		at := path + ".0"
		o := w.origin(at, "coder", b)
		o.Usage = session.Usage{Calls: 1, Input: 600, Output: 9, CacheRead: read}
		w.commit(b.Key(), b, at, session.ChunkEvent(session.AssistantText("then").Of(o)),
			w.done(journal.StepCompleted{Path: at, Kind: journal.StepModel, Name: "coder", Row: true, Usage: o.Usage, Model: "scripted"}))
	}
	tree, err := w.graph().Tree(s.Key(), nil)
	w.must(err)
	if strings.Count(tree, "of input cached") != 1 || !strings.Contains(tree, "fork of s1 at 2 (b1), 75% of input cached") {
		t.Errorf("tree:\n%s", tree)
	}
}

func TestNotFound(t *testing.T) {
	w := playDemo(t)
	g := w.graph()
	none := session.Key{Tenant: "acme", ID: "none"}
	other := session.Key{Tenant: "globex", ID: w.home.ID}
	for _, k := range []session.Key{none, other} {
		_, errs := g.Session(k)
		_, err2 := g.Tree(k, nil)
		_, err3 := g.Picture(k, nil)
		_, err4 := g.Why(k, 1)
		_, err5 := g.Heads(k, 0)
		for _, err := range []error{errs, err2, err3, err4, err5} {
			if !errors.Is(err, lineage.ErrNotFound) {
				t.Errorf("%s: %v, want ErrNotFound", k, err)
			}
		}
	}
	if _, err := g.Why(w.home, 99); !errors.Is(err, lineage.ErrNotFound) || !strings.Contains(err.Error(), "ends at 4") {
		t.Errorf("a version that is not there: %v", err)
	}
	if _, err := g.Run("globex", "run-7f3a"); !errors.Is(err, lineage.ErrNotFound) {
		t.Errorf("another tenant's run: %v", err)
	}
}

// TestStepsOfOneMillisecond checks that simultaneous steps of a run in several sessions are
// in the order of the run, independent of the ids of the sessions.
func TestStepsOfOneMillisecond(t *testing.T) {
	const id = run.ID("r")
	g := lineage.NewGraph()
	for i, in := range []session.ID{"c", "b", "a"} {
		r := messages.Record{
			Schema: lineage.Schema, Tenant: session.DefaultTenant, Session: in, Root: "c", Run: id, Kind: messages.KindModel, Agent: "writer",
			Step: run.Path(fmt.Sprint(9 + i)), Commit: 1, Time: 1_800_000_000_000,
		}
		if g.Add(r) != 1 {
			t.Fatalf("%+v is not taken", r)
		}
	}
	var got []run.Path
	for _, r := range g.StepsOf(session.DefaultTenant, id) {
		got = append(got, r.Step)
	}
	if want := []run.Path{"9", "10", "11"}; !slices.Equal(got, want) {
		t.Errorf("the steps come as %q, want %q", got, want)
	}
}

// TestContinuation: a run that another one continues names it, and its cleanup run does not
// count.
func TestContinuation(t *testing.T) {
	g := lineage.NewGraph()
	home := messages.Record{Schema: lineage.Schema, Kind: messages.KindSubmitted, Tenant: "acme", Root: "s", Session: "s", Commit: 1, Run: "one", Time: 1_800_000_000_000}
	clean, next := home, home
	clean.Session, clean.Run, clean.Resumes = "c", "one-cleanup", &messages.Place{Run: "one", Session: "s", Step: "2"}
	next.Session, next.Run, next.Resumes = "n", "one-r1", clean.Resumes
	g.Add(home, clean)
	if id := g.Continuation("acme", "one"); id != "" {
		t.Errorf("continued by %s", id)
	}
	g.Add(next)
	if a, b := g.Continuation("acme", "one"), g.Continuation("bolt", "one"); a != "one-r1" || b != "" {
		t.Errorf("continued by %q; that of another tenant by %q", a, b)
	}
}
