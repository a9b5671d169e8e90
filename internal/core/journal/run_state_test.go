package journal

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// allowed are the moves of a run's state. A claim may follow a claim: that is
// a new attempt.
var allowed = map[run.State][]run.State{
	"":              {run.Queued, run.Running},                              // Running in the log of a branch
	run.Queued:      {run.Running, run.Cancelled, run.Failed, run.TimedOut}, // Failed where its session was closed
	run.Running:     {run.Running, run.Queued, run.Waiting, run.Succeeded, run.Failed, run.Cancelled, run.TimedOut, run.NeedsReview},
	run.Waiting:     {run.Queued, run.Cancelled, run.TimedOut, run.Failed},
	run.NeedsReview: {run.Queued, run.Failed, run.Cancelled, run.NeedsReview},
}

// watcher folds a log event by event and checks the invariants after each.
type watcher struct {
	t      *testing.T
	key    session.Key
	book   RunState
	states map[run.ID]run.State
	seen   map[run.ID]Record
	steps  map[string]uint64 // attempt that recorded it
	ends   map[run.ID]int
	epoch  uint64
	moves  map[string]int
}

func (w *watcher) event(c commitlog.Commit, e session.Event) {
	w.t.Helper()
	if err := w.book.Fold(w.key, Facts(commitlog.Commit{Events: []session.Event{e}})); err != nil {
		w.t.Fatalf("commit %d: %s: %v", c.Seq, e.Kind, err)
	}
	for id, r := range w.book.runs {
		was := w.states[id]
		if was != r.State && !slices.Contains(allowed[was], r.State) {
			w.t.Fatalf("commit %d of %s: %s moves run %s from %q to %q", c.Seq, w.key, e.Kind, id, was, r.State)
		}
		if was != r.State {
			w.moves[fmt.Sprintf("%s>%s", was, r.State)]++
		}
		old := w.seen[id]
		if r.Attempt < old.Attempt || r.Epoch < old.Epoch || !old.Started.IsZero() && !r.Started.Equal(old.Started) {
			w.t.Fatalf("commit %d: attempt %d, epoch %d, started %v after attempt %d, epoch %d, started %v", c.Seq, r.Attempt, r.Epoch, r.Started, old.Attempt, old.Epoch, old.Started)
		}
		if old.Cancel != nil && old.Cancel != r.Cancel || old.Ended != nil && old.Ended != r.Ended {
			w.t.Fatalf("commit %d: the end or the cancel of %s changed", c.Seq, id)
		}
		switch {
		case r.State.Terminal() && (r.Ended == nil || r.steps != nil || w.book.Active == id):
			w.t.Fatalf("commit %d: %s has ended with %+v, %d steps, active %s", c.Seq, id, r.Ended, len(r.steps), w.book.Active)
		case (r.State == run.Running || r.State == run.NeedsReview) && w.book.Active != id:
			w.t.Fatalf("commit %d: %s is %s, the session is held by %q", c.Seq, id, r.State, w.book.Active)
		case r.State == run.NeedsReview && r.Review == nil:
			w.t.Fatalf("commit %d: %s is in review without a reason", c.Seq, id)
		}
		for p, s := range r.steps {
			name := string(id) + "/" + string(p)
			if by, ok := w.steps[name]; ok && by != s.Attempt {
				w.t.Fatalf("commit %d: step %s of attempt %d was recorded by attempt %d before", c.Seq, name, s.Attempt, by)
			}
			w.steps[name] = s.Attempt
		}
		w.states[id], w.seen[id] = r.State, *r
	}
	queue := map[run.ID]bool{}
	for _, id := range w.book.Queue {
		if r := w.book.Run(id); queue[id] || r == nil || r.State != run.Queued || id == w.book.Active {
			w.t.Fatalf("commit %d: the queue %v holds %s", c.Seq, w.book.Queue, id)
		}
		queue[id] = true
	}
	if e.Kind == KindEnded {
		v := must.Get(Decode[Ended](e))(w.t)
		if w.ends[v.Run]++; w.ends[v.Run] > 1 {
			w.t.Fatalf("commit %d: %s ends twice", c.Seq, v.Run)
		}
		if v.Next != nil && (w.book.Run(v.Next.Run) == nil || w.book.Run(v.Next.Run).State != run.Queued || w.book.Active != "") {
			w.t.Fatalf("commit %d: promotes %s", c.Seq, v.Next.Run)
		}
		if len(w.book.Queue) > 0 && w.book.Active == "" && v.Next == nil {
			w.t.Fatalf("commit %d: nobody holds the session, %v wait and none is promoted", c.Seq, w.book.Queue)
		}
	}
}

// TestStates: for all requests in any order, runs make only legal state transitions,
// and at most one run holds a session at a time.
func TestStates(t *testing.T) {
	moves := map[string]int{}
	for seed := range uint64(10) {
		h := newTheatre(t, 1000+seed)
		for range 400 {
			h.act()
		}
		for _, k := range h.log.Keys() {
			w := watcher{t: t, key: k, states: map[run.ID]run.State{}, seen: map[run.ID]Record{}, steps: map[string]uint64{}, ends: map[run.ID]int{}, moves: moves}
			for e, err := range h.log.Read(t.Context(), k, commitlog.Position{}) {
				must.Do(t, err)
				if e.Commit.Epoch < w.epoch || e.Commit.Epoch == 0 {
					t.Fatalf("commit %d of %s has epoch %d after %d", e.At.Seq, k, e.Commit.Epoch, w.epoch)
				}
				if first := e.Commit.Events[0].Kind == KindWriter; first != (e.Commit.Epoch > w.epoch) {
					t.Fatalf("commit %d of %s: epoch %d after %d begins with %s", e.At.Seq, k, e.Commit.Epoch, w.epoch, e.Commit.Events[0].Kind)
				}
				w.epoch = e.Commit.Epoch
				for _, ev := range e.Commit.Events {
					w.event(e.Commit, ev)
				}
				if _, err := Followups(e, Facts(e.Commit)); err != nil {
					t.Fatalf("Followups: %v", err)
				}
			}
		}
	}
	t.Logf("moves: %v", moves)
	for _, want := range []string{
		">queued", ">running", "queued>running", "queued>cancelled", "running>queued", "running>succeeded", "running>failed",
		"running>timed_out", "running>cancelled", "running>needs_review", "needs_review>queued", "needs_review>failed", "needs_review>cancelled",
	} {
		if moves[want] == 0 {
			t.Errorf("no history has the move %s", want)
		}
	}
}

// TestFoldIsDeterministic: folding a log twice gives the same, also by other
// writers.
func TestFoldIsDeterministic(t *testing.T) {
	h := newTheatre(t, 99)
	for range 300 {
		h.act()
	}
	for _, k := range h.log.Keys() {
		var writers [2]*StateMachine
		for i := range writers {
			var err error
			if writers[i], err = LoadStateMachine(t.Context(), plainLog{h.log}, NewValues(h.log), k, fmt.Sprint("reader", i)); err != nil {
				t.Fatal(err)
			}
		}
		h.same(writers[0], writers[1], k.String())
	}
}

// FuzzFold folds arbitrary events. The fold never panics, and a failed event changes
// nothing.
func FuzzFold(f *testing.F) {
	h := newTheatre(f, 5)
	for range 200 {
		h.act()
	}
	for _, k := range h.log.Keys() {
		var script strings.Builder
		for e, err := range h.log.Read(f.Context(), k, commitlog.Position{}) {
			must.Do(f, err)
			for _, ev := range e.Commit.Events {
				if ev.Kind != session.KindChunk {
					fmt.Fprintln(&script, ev.Kind, ev.Data)
				}
			}
			if script.Len() > 3000 {
				f.Add(script.String())
				script.Reset()
			}
		}
		f.Add(script.String())
	}
	f.Add("run.submitted {\"task\":{\"run\":\"r\"}}\nrun.claimed {\"run\":\"r\",\"attempt\":1}\nrun.ended {\"run\":\"r\",\"state\":\"failed\"}\n" +
		"run.claimed {\"run\":\"r\",\"attempt\":2}\nrun.review {\"run\":\"r\"}\nrun.resolved {\"run\":\"r\",\"path\":\"1\"}\nstep.done {\"run\":\"r\",\"path\":\"1\"}")
	f.Add("run.submitted {\"task\":{\"run\":\"r\"}}\nrun.ended {\"run\":\"r\",\"state\":\"running\"}\nrun.review {\"run\":\"r\"}\nrun.resolved {\"run\":\"r\"}")
	f.Fuzz(func(t *testing.T, script string) {
		k := session.Key{Tenant: "t", ID: "s"}
		w := NewStateMachine(k, "n", nil)
		w.value = session.Open(k, k.ID)
		w.at = commitlog.Position{Seq: 1}
		for line := range strings.Lines(script) {
			kind, data, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			e := session.Event{Kind: kind, Schema: 1, Data: data, Time: time.UnixMilli(1).UTC()}
			before, err := json.Marshal(w.state.wireForTest())
			must.Do(t, err)
			changes, err := w.plan(w.value, []session.Event{e})
			if err == nil {
				w.apply(changes)
				continue
			}
			if after, err := json.Marshal(w.state.wireForTest()); err != nil || string(after) != string(before) {
				t.Fatalf("%s failed and changed the book:\n%s\n%s", line, before, after)
			}
		}
		for _, r := range w.state.Runs() {
			w.state.JournalOf(r.ID)
			r.Steps()
			r.copy()
		}
		w.settle(commitlog.Position{Seq: 2})
		s := must.Get(w.Snapshot())(t)
		log := &commitlog.Memory{}
		must.Do(t, s.Save(t.Context(), log))
		if got := NewValues(log).restore(t.Context(), log, k); got == nil {
			t.Fatal("the snapshot cannot be read")
		} else if a, b := mustJSON(t, w.state.wireForTest()), mustJSON(t, got.state.wireForTest()); a != b {
			t.Fatalf("the snapshot differs:\n%s\n%s", a, b)
		}
	})
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b := must.Get(json.Marshal(v))(t)
	return string(b)
}

// wireForTest shows a book whole.
func (b *RunState) wireForTest() map[string]any {
	m := map[string]any{"epoch": b.Epoch, "incarnation": b.Incarnation, "active": b.Active, "queue": append([]run.ID{}, b.Queue...)}
	for _, r := range b.Runs() {
		rec, _, err := r.copyForTest().marshal(map[int]session.Session{})
		if err != nil {
			panic(err)
		}
		m["run "+string(r.ID)] = rec
	}
	return m
}

func (r *Record) copyForTest() *Record {
	cp := r.copy()
	cp.taskPage = nil
	cp.order.items = append(cp.order.items, cp.Steps()...)
	return cp
}
