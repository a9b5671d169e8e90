package schedule_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// world is a partition's event stream with nodes that execute the dispatches of a scheduler
// in the simplest way: a run is claimed, takes a while, and ends.
type world struct {
	t      *testing.T
	random *rand.Rand
	now    time.Time
	s      *schedule.Scheduler
	log    []commitlog.Entry
	folded int // entries that the scheduler has
	seqs   map[session.Key]uint64
	runs   map[run.ID]*modelRun
	nodes  map[string]*modelNode
	later  []event
	next   int // name of a node

	pages   map[int][]byte // as stored, with the entries that they hold
	count   int
	stored  int
	results map[run.ID]int
	calm    bool // nothing goes wrong any more
}

type modelRun struct {
	key      session.Key
	workflow string
	attempt  uint64
	node     string
	ended    bool
	claims   int
}

type modelNode struct {
	name   string
	pool   string
	slots  int
	busy   map[run.ID]uint64 // the attempt that executes
	alive  bool
	demand bool
	kept   map[uint64]bool // grants
	grants uint64
}

type event struct {
	at time.Time
	do func()
}

func (w *world) after(most time.Duration, do func()) {
	w.later = append(w.later, event{w.now.Add(time.Duration(w.random.Int64N(int64(most))) + 1), do})
}

func (w *world) event(kind string, v any) session.Event {
	e := must.Get(journal.NewEvent(kind, v))(w.t)
	return e
}

// commit appends to the stream; the scheduler reads it a moment later.
func (w *world) commit(k session.Key, events ...session.Event) {
	w.seqs[k]++
	for i := range events {
		events[i].Time = w.now
	}
	c := commitlog.Commit{Key: k, Root: k.ID, Seq: w.seqs[k], Events: events}
	w.log = append(w.log, commitlog.Entry{Commit: c, At: commitlog.Position{Seq: c.Seq, Token: uint64(len(w.log) + 1)}})
	w.after(5*time.Millisecond, w.fold)
}

func (w *world) fold() {
	for ; w.folded < len(w.log); w.folded++ {
		must.Do(w.t, w.s.Fold(w.now, w.log[w.folded], journal.Facts(w.log[w.folded].Commit)))
	}
}

func (w *world) submit(id run.ID, tenant session.Tenant, workflow string) {
	k := session.Key{Tenant: tenant, ID: session.ID("s-" + id)}
	w.runs[id] = &modelRun{key: k, workflow: workflow}
	w.commit(k, w.event(journal.KindSubmitted, map[string]any{"digest": "d", "task": map[string]any{"run": id, "workflow": workflow}}))
}

func (w *world) start(pool string, slots int) *modelNode {
	w.next++
	return w.join(&modelNode{name: fmt.Sprintf("n%d", w.next), pool: pool, slots: slots, busy: map[run.ID]uint64{}, kept: map[uint64]bool{}, alive: true})
}

// bind starts a node bound to a tenant.
func (w *world) bind(t session.Tenant, pool string, slots int) *modelNode {
	w.next++
	name := must.Get(messages.BoundIncarnation(t, fmt.Sprintf("%012d", w.next)))(w.t)
	return w.join(&modelNode{name: name, pool: pool, slots: slots, busy: map[run.ID]uint64{}, kept: map[uint64]bool{}, alive: true})
}

func (w *world) join(n *modelNode) *modelNode {
	w.nodes[n.name] = n
	w.announce(n)
	return n
}

func (n *modelNode) free() int { return max(n.slots-len(n.busy)-len(n.kept), 0) }

func (n *modelNode) state() schedule.NodeState {
	return schedule.NodeState{Incarnation: n.name, Pool: n.pool, Free: n.free()}
}

func (w *world) announce(n *modelNode) {
	if n.alive {
		w.s.Slots.Node(w.now, n.state())
		w.later = append(w.later, event{w.now.Add(schedule.NodeEvery), func() { w.announce(n) }})
	}
}

func (w *world) die(n *modelNode) {
	n.alive = false
	w.after(time.Second, func() { w.s.Recheck(w.now) })
}

// take is a node's handling of a dispatch.
func (w *world) take(n *modelNode, t *journal.Task, grant uint64) schedule.Outcome {
	r := w.runs[t.ID]
	delete(n.kept, grant)
	if t, bound := messages.BoundTo(n.name); bound && t != r.key.Tenant {
		w.t.Errorf("run %s of %s was dispatched to %s", r.key.ID, r.key.Tenant, n.name)
	}
	switch {
	case !n.alive:
		return schedule.Outcome{Result: schedule.Gone, Free: -1}
	case n.free() == 0:
		return schedule.Outcome{Result: schedule.Busy}
	case r.ended, r.attempt != t.Seen.Attempt: // refused by the fold
		return schedule.Outcome{Result: schedule.Settled, Free: n.free()}
	}
	if holder := w.nodes[r.node]; holder != nil && holder.alive && holder.busy[t.ID] == r.attempt {
		w.t.Errorf("run %s was dispatched to %s while %s executes it", t.ID, n.name, r.node)
	}
	r.attempt++
	r.claims++
	r.node = n.name
	attempt := r.attempt
	n.busy[t.ID] = attempt
	w.commit(r.key, w.event(journal.KindClaimed, journal.Claimed{Attempt: attempt, Home: r.key, Incarnation: n.name, Run: t.ID, Workflow: r.workflow}))
	w.after(2*time.Second, func() {
		if !n.alive || r.ended || r.attempt != attempt {
			return
		}
		r.ended = true
		delete(n.busy, t.ID)
		w.commit(r.key, w.event(journal.KindEnded, journal.Ended{Attempt: attempt, Run: t.ID, State: run.Succeeded, Workflow: r.workflow}))
		w.grant(n)
	})
	return schedule.Outcome{Result: schedule.Settled, Free: n.free()}
}

func (w *world) grant(n *modelNode) {
	if n.alive && n.demand && n.free() > 0 {
		n.grants++
		grant := n.grants
		n.kept[grant] = true
		w.after(10*time.Millisecond, func() { w.s.Slots.Grant(w.now, n.state(), grant, schedule.Head{Tenant: "t0"}) })
		w.later = append(w.later, event{w.now.Add(250 * time.Millisecond), func() { delete(n.kept, grant) }})
	}
}

func (w *world) wrong(percent int) bool { return !w.calm && w.random.IntN(100) < percent }

func (w *world) carryOut(a schedule.Action) {
	answer := func(o schedule.Outcome) {
		s := w.s
		most := 20 * time.Millisecond
		if w.wrong(5) {
			most = 5 * time.Second
		}
		w.after(most, func() {
			if w.s == s {
				s.Done(w.now, a.ID, o)
			}
		})
	}
	switch a.Kind {
	case schedule.Dispatch:
		n := w.nodes[a.Node]
		if a.Demand != nil {
			n.demand = len(a.Demand.Heads) > 0
		}
		switch {
		case w.wrong(3): // the dispatch is lost
			answer(schedule.Outcome{Result: schedule.Silent, Free: -1})
		case w.wrong(3): // the answer is lost
			w.take(n, a.Work.Task, a.Grant)
			answer(schedule.Outcome{Result: schedule.Silent, Free: -1})
		case w.wrong(3):
			answer(schedule.Outcome{Result: schedule.Failed, Free: -1})
		default:
			answer(w.take(n, a.Work.Task, a.Grant))
		}
	case schedule.Announce:
		t, bound := messages.BoundTo(a.Node)
		for _, h := range a.Demand.Heads {
			if bound && h.Tenant != t {
				w.t.Errorf("%s heard that runs of %s wait", a.Node, h.Tenant)
			}
		}
		if n := w.nodes[a.Node]; !w.wrong(5) {
			n.demand = len(a.Demand.Heads) > 0
			delete(n.kept, a.Grant)
			w.grant(n)
		}
	case schedule.Store:
		if w.wrong(20) {
			answer(schedule.Outcome{})
			return
		}
		w.results[a.Result.Run]++
		answer(schedule.Outcome{Result: schedule.Settled})
	case schedule.Place:
		answer(schedule.Outcome{Result: schedule.Settled, Pools: []schedule.Pool{{Name: a.Workflow}}})
	case schedule.Load:
		if w.wrong(20) {
			answer(schedule.Outcome{})
			return
		}
		e := w.log[a.Token-1]
		answer(schedule.Outcome{Result: schedule.Settled, Entry: &e})
	case schedule.Signal:
		answer(schedule.Outcome{Result: schedule.Settled})
	default:
		w.t.Fatalf("action %+v", a)
	}
}

func (w *world) options() *schedule.Options {
	return &schedule.Options{Self: "relay", Known: func(name string) (alive, known bool) {
		n := w.nodes[name]
		return n != nil && n.alive, true
	}}
}

// save stores the changes of the open set, while the world continues.
func (w *world) save() {
	pages := map[int][]byte{}
	for more := true; more; {
		var some map[int][]byte
		var err error
		if some, more, err = w.s.Pages.Take(1 + w.random.IntN(8)); err != nil {
			w.t.Fatal(err)
		}
		maps.Copy(pages, some)
		if more {
			w.step()
		}
	}
	maps.Copy(w.pages, pages)
	w.count, w.stored = w.s.Pages.Count(), w.folded
}

// restart has another relay continue from the stored open set.
func (w *world) restart() {
	stored := make([][]byte, w.count)
	for i, data := range w.pages {
		stored[i] = data
	}
	var err error
	if w.s, err = schedule.Restore(w.options(), w.now, stored); err != nil {
		w.t.Fatal(err)
	}
	w.folded = w.stored
	w.fold()
	w.s.Begin(w.now)
	for _, n := range w.nodes {
		if n.alive {
			w.s.Slots.Node(w.now, n.state())
		}
	}
}

// step carries out the scheduler's actions and advances to the next event.
func (w *world) step() {
	for _, a := range w.s.Next(w.now) {
		w.carryOut(a)
	}
	at := w.s.Wake()
	for _, e := range w.later {
		if at.IsZero() || e.at.Before(at) {
			at = e.at
		}
	}
	if at.After(w.now) {
		w.now = at
	}
	due := []event{}
	w.later = slices.DeleteFunc(w.later, func(e event) bool {
		if e.at.After(w.now) {
			return false
		}
		due = append(due, e)
		return true
	})
	slices.SortStableFunc(due, func(a, b event) int { return a.at.Compare(b.at) })
	for _, e := range due {
		e.do()
	}
}

// TestQuick has nodes come and die, answers and dispatches get lost, and the relay restart
// from its stored state: every run ends, none is executed by two living nodes or sent to a
// node bound to another tenant, each has its result, and nothing stays open.
func TestQuick(t *testing.T) {
	for seed := range uint64(60) {
		w := &world{
			t: t, random: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_700_000_000, 0), seqs: map[session.Key]uint64{}, runs: map[run.ID]*modelRun{},
			nodes: map[string]*modelNode{}, pages: map[int][]byte{}, results: map[run.ID]int{},
		}
		w.s = schedule.New(w.options())
		w.count = w.s.Pages.Count()
		w.s.Begin(w.now)
		for i := range 3 {
			w.start([]string{"a", "b"}[i%2], 1+w.random.IntN(4))
		}
		const runs = 120
		began := w.now
		for i := 0; i < runs; {
			switch w.random.IntN(15) {
			case 0:
				w.start([]string{"a", "b"}[w.random.IntN(2)], 1+w.random.IntN(4))
			case 1:
				names := slices.Sorted(maps.Keys(w.nodes))
				w.die(w.nodes[names[w.random.IntN(len(names))]])
			case 14:
				w.bind(session.Tenant(fmt.Sprintf("t%d", w.random.IntN(3))), []string{"a", "b"}[w.random.IntN(2)], 1+w.random.IntN(4))
			case 2:
				w.save()
			case 3:
				w.restart()
			case 4, 5, 6:
				w.submit(run.ID(fmt.Sprintf("r%d", i)), session.Tenant(fmt.Sprintf("t%d", i%3)), []string{"a", "b"}[w.random.IntN(2)])
				i++
			default:
				w.step()
			}
		}
		w.calm = true
		w.start("a", 2)
		w.start("b", 2)
		open := func() int {
			n := 0
			for _, r := range w.runs {
				if !r.ended {
					n++
				}
			}
			return n
		}
		for end := w.now.Add(5 * time.Minute); w.now.Before(end) && (open() > 0 || w.s.Open() > 0 || len(w.results) < runs); {
			w.step()
		}
		if n := open(); n > 0 || w.s.Open() > 0 || len(w.results) < runs {
			t.Fatalf("seed %d: %d runs have not ended after %v, %d are open for the scheduler, %d have results", seed, n, w.now.Sub(began), w.s.Open(), len(w.results))
		}
		for end := w.now.Add(time.Minute); w.now.Before(end); { // answers come
			w.step()
		}
		pages, more, err := w.s.Pages.Take(w.s.Pages.Count())
		if err != nil || more {
			t.Fatal(more, err)
		}
		for i, p := range pages {
			if p != nil {
				t.Errorf("seed %d: page %d is not empty: %s", seed, i, p)
			}
		}
	}
}
