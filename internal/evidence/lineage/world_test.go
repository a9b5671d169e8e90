package lineage_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// world plays workflows over the in-memory log with the real writer, so that the records
// under test are from the commits of a node.
type world struct {
	t       testing.TB
	log     commitlog.Memory
	store   journal.Store
	values  *journal.Values
	now     time.Time
	mint    commitlog.IDGenerator
	home    session.Key
	run     run.ID
	attempt uint64
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, now: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC), mint: commitlog.IDGenerator{Generation: 1, Partitions: 4}}
	w.values = journal.NewValues(&w.log)
	w.store = journal.NewStore(&w.log, &journal.StoreOptions{Incarnation: "node-a", Now: func() time.Time {
		w.now = w.now.Add(10 * time.Millisecond)
		return w.now
	}, Values: w.values})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	must.Do(w.t, err)
}

func (w *world) start(home session.ID, id run.ID, first ...session.Chunk) session.Session {
	w.t.Helper()
	w.home, w.run = session.Key{Tenant: "acme", ID: home}, id
	var events []session.Event
	for _, c := range first {
		events = append(events, session.ChunkEvent(c))
	}
	g, err := w.store.Claim(context.Background(), journal.Claim{
		Session: w.home, Home: w.home, Run: id, Revision: "r1", Open: session.Opening{Kind: session.OpenLeaf}, Events: events,
		Task: &journal.Task{ID: id, Workflow: "fix", Session: w.home},
	})
	w.must(err)
	w.attempt = g.Attempt
	return g.Session
}

func (w *world) commit(k session.Key, base session.Session, path run.Path, events ...session.Event) session.Session {
	w.t.Helper()
	b := journal.Batch{Session: k, Run: w.run, Attempt: w.attempt, Path: path, Events: events}
	if base.Key() == k {
		b.Base = base.Ref().Version
	}
	ack, err := w.store.Commit(context.Background(), b)
	w.must(err)
	return ack.Session
}

func (w *world) event(kind string, payload any) session.Event {
	w.t.Helper()
	e, err := journal.NewEvent(kind, payload)
	w.must(err)
	return e
}

func (w *world) done(d journal.StepCompleted) session.Event {
	d.Run, d.Attempt, d.Revision = w.run, w.attempt, "r1"
	d.Input = "00"
	return w.event(journal.KindStepCompleted, d)
}

func (w *world) origin(path run.Path, agent string, s session.Session) session.Origin {
	return session.Origin{Agent: agent, Workflow: "fix", Node: "node-a", Run: string(w.run), Step: string(path), Time: w.now, Placement: s.Placement()}
}

func (w *world) model(s session.Session, path run.Path, agent, text string, calls ...session.ToolCall) session.Session {
	w.t.Helper()
	o := w.origin(path, agent, s)
	o.Usage = session.Usage{Calls: 1, Input: 600, Output: 87, MicroUSD: 210}
	return w.commit(s.Key(), s, path,
		session.ChunkEvent(session.AssistantText(text, calls...).Of(o)),
		w.done(journal.StepCompleted{Path: path, Kind: journal.StepModel, Name: agent, Row: true, Usage: o.Usage, Model: "scripted"}))
}

func (w *world) tool(s session.Session, path run.Path, agent, name, call, summary string, after string) session.Session {
	w.t.Helper()
	o := w.origin(path, agent, s)
	d := journal.StepCompleted{Path: path, Kind: journal.StepTool, Name: name, Call: call, Row: true, Effect: "sandboxed", Summary: summary, Elapsed: 12}
	if after != "" {
		d.HeadBefore, d.HeadAfter = s.Placement().Head, blob.Sum([]byte(after))
		o.Placement.Backend, o.Placement.Head = "local", d.HeadAfter
	}
	return w.commit(s.Key(), s, path,
		session.ChunkEvent(session.Result(call, name, `{"ok":true}`, false).Of(o)), w.done(d))
}

func (w *world) open(s session.Session, path run.Path, head string) session.Session {
	w.t.Helper()
	p := session.Placement{Backend: "local", Epoch: 1, Head: blob.Sum([]byte(head)), Isolation: "landlock+seccomp", Spec: "https://user:hunter2@example.test/x"}
	return w.commit(s.Key(), s, path, session.PlacedEvent(p), w.done(journal.StepCompleted{Path: path, Kind: journal.StepOpen, Name: "local", HeadAfter: p.Head}))
}

func (w *world) step(s session.Session, d journal.StepCompleted) session.Session {
	w.t.Helper()
	return w.commit(s.Key(), s, d.Path, w.done(d))
}

func (w *world) fork(s session.Session, path run.Path, kind, name string) session.Session {
	w.t.Helper()
	child := session.Key{Tenant: w.home.Tenant, ID: w.mint.Child(w.home.Tenant, string(w.run), string(path))}
	step := journal.StepFork
	if kind == session.OpenDetach {
		step = journal.StepDetach
	}
	base := w.commit(s.Key(), s, path, w.done(journal.StepCompleted{
		Path: path, Kind: step, Name: name, Links: []session.Link{{Ref: session.Ref{Key: child, Version: s.Ref().Version}}},
	}))
	return w.claim(child, base.Root(), session.Opening{Kind: kind, Name: name, Parents: []session.Link{w.link(base)}, Run: string(w.run), Step: string(path)})
}

func (w *world) link(s session.Session) session.Link {
	w.t.Helper()
	l, ok := s.Link()
	if !ok {
		w.t.Fatalf("%s has no link", s.Ref())
	}
	return l
}

func (w *world) claim(k session.Key, root session.ID, open session.Opening, events ...session.Event) session.Session {
	w.t.Helper()
	if open.Kind == session.OpenDetach {
		root = k.ID
	}
	g, err := w.store.Claim(context.Background(), journal.Claim{
		Session: k, Home: w.home, Run: w.run, Attempt: w.attempt, Revision: "r1", Open: open, Root: root, Events: events,
	})
	w.must(err)
	return g.Session
}

func (w *world) reject(parent, branch session.Session, path run.Path, reason string) {
	w.t.Helper()
	l := w.link(branch)
	w.commit(parent.Key(), session.Session{}, path,
		commitlog.RejectedEvent(commitlog.Rejection{Branch: l, Reason: reason, State: session.ClosedRejected}),
		w.done(journal.StepCompleted{Path: path, Kind: journal.StepReject, Name: session.ClosedRejected, Links: []session.Link{l}, Summary: reason}))
	w.commit(branch.Key(), session.Session{}, "", session.ClosedEvent(session.Closing{By: parent.Key(), Reason: reason, State: session.ClosedRejected}))
}

func (w *world) join(trunk session.Session, policy string, path run.Path, reason string, branches ...session.Session) session.Session {
	w.t.Helper()
	j, err := session.JoinOf(trunk, policy, reason, 0, branches...)
	w.must(err)
	var links []session.Link
	for _, b := range branches {
		links = append(links, w.link(b))
	}
	s := w.commit(trunk.Key(), trunk, path, session.JoinedEvent(j), w.done(journal.StepCompleted{Path: path, Kind: journal.StepJoin, Name: policy, Links: links, Summary: reason}))
	state := session.ClosedMerged
	if policy == session.JoinAdopt {
		state = session.ClosedAdopted
	}
	for _, b := range branches {
		w.commit(b.Key(), session.Session{}, "", session.ClosedEvent(session.Closing{By: trunk.Key(), Reason: reason, State: state}))
	}
	return s
}

func (w *world) end(s session.Session, state run.State, text string) {
	w.t.Helper()
	e := journal.Ended{Attempt: w.attempt, Run: w.run, State: state, Workflow: "fix", Error: text, Usage: s.Usage()}
	if text != "" {
		e.Code = run.CodeError
	}
	if l, ok := s.Link(); ok && state == run.Succeeded {
		e.Result, e.Output = &l, s.Text()
	}
	w.commit(w.home, session.Session{}, "end", w.event(journal.KindEnded, e))
}

// entries returns every commit of every log.
func (w *world) entries() []commitlog.Entry {
	w.t.Helper()
	var out []commitlog.Entry
	for _, k := range w.log.Keys() {
		for e, err := range w.log.Read(context.Background(), k, commitlog.Position{}) {
			w.must(err)
			out = append(out, e)
		}
	}
	return out
}

func (w *world) records() []messages.Record {
	w.t.Helper()
	var out []messages.Record
	for _, e := range w.entries() {
		rs, err := lineage.Derive(e)
		w.must(err)
		for i := range rs {
			rs[i].Partition, rs[i].Seq = 1, e.At.Token
		}
		out = append(out, rs...)
	}
	return out
}

func (w *world) graph() *lineage.Graph {
	w.t.Helper()
	g := lineage.NewGraph()
	g.Add(w.records()...)
	return g
}

// tree returns the timeline of the home's tree.
func (w *world) tree(o *lineage.TreeOptions) string {
	w.t.Helper()
	text, err := w.graph().Tree(w.home, o)
	w.must(err)
	return text
}

func (w *world) picture(o *lineage.PictureOptions) *lineage.Picture {
	w.t.Helper()
	p, err := w.graph().Picture(w.home, o)
	w.must(err)
	return p
}

// branches returns the sessions that were opened from the home, by time.
func (w *world) branches() []lineage.Session {
	w.t.Helper()
	all, err := w.graph().Sessions(w.home.Tenant, w.home.ID)
	w.must(err)
	return slices.DeleteFunc(all, func(s lineage.Session) bool { return len(s.Parents) == 0 || s.Parents[0].Session != w.home.ID })
}

func call(id, name string) session.ToolCall {
	return session.ToolCall{ID: id, Name: name, Args: `{"path":"slug.sh"}`}
}

// playDemo plays the story of the documentation.
func playDemo(t testing.TB) *world {
	w := newWorld(t)
	home := w.mint.ID("0c77e1d2a94b55e0f3a1")
	s := w.start(home, "run-7f3a", session.UserText("slug drops the last word"))
	s = w.open(s, "0", "before")
	s = w.step(s, journal.StepCompleted{Path: "1", Kind: journal.StepRecall, Name: "local", Summary: "reads issue.md, recalls 0 notes"})
	s = w.model(s, "2", "planner", "2 steps")
	b := w.fork(s, "3", session.OpenFork, "")
	b = w.model(b, "4", "coder", "", call("c1", "edit_file"))
	b = w.tool(b, "4.0", "coder", "edit_file", "c1", "edits slug.sh  +1 -1", "first")
	b = w.tool(b, "5", "sandbox", "run_shell", "c2", "sh test.sh: 2 of 3 green, exit 1", "")
	b = w.model(b, "6", "verifier", "reject: breaks empty input")
	w.reject(s, b, "7", "breaks empty input")
	c := w.fork(s, "8", session.OpenFork, "second try")
	c = w.step(c, journal.StepCompleted{Path: "9", Kind: journal.StepRemember, Name: "", Summary: `remembers "check empty input before trimming"`})
	c = w.model(c, "10", "coder", "", call("c3", "edit_file"))
	c = w.tool(c, "10.0", "coder", "edit_file", "c3", "edits slug.sh  +3 -1", "second")
	c = w.tool(c, "11", "sandbox", "run_shell", "c4", "sh test.sh: 3 of 3 green, exit 0", "")
	c = w.model(c, "12", "verifier", "accept")
	s = w.join(s, session.JoinAdopt, "13", "all tests pass", c)
	w.end(s, run.Succeeded, "")
	return w
}
