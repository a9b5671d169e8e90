package schedule

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// epoch is when histories begin.
var epoch = time.Unix(1_700_000_000, 0)

// history writes an event stream in which runs go through all that can happen to
// them.
type history struct {
	tb     testing.TB
	random *rand.Rand
	runs   map[session.Key][]*pastRun // open ones
	seqs   map[session.Key]uint64
	n      uint64 // commits
	apart  map[session.Key]bool
}

type pastRun struct {
	id      run.ID
	state   run.State
	attempt uint64
	waits   int
	fanned  bool
}

func newHistory(tb testing.TB, seed uint64) *history {
	return &history{
		tb: tb, random: rand.New(rand.NewPCG(seed, 1)), runs: map[session.Key][]*pastRun{}, seqs: map[session.Key]uint64{}, apart: map[session.Key]bool{},
	}
}

func (h *history) event(kind string, v any) session.Event {
	h.tb.Helper()
	e := must.Get(journal.NewEvent(kind, v))(h.tb)
	e.Time = epoch
	return e
}

func (h *history) commit(k session.Key, events ...session.Event) commitlog.Entry {
	h.n++
	h.seqs[k]++
	c := commitlog.Commit{Key: k, Root: k.ID, Seq: h.seqs[k], Events: events}
	return commitlog.Entry{Commit: c, At: commitlog.Position{Seq: c.Seq, Token: h.n}}
}

func (h *history) submit(k session.Key, id run.ID) commitlog.Entry {
	h.runs[k] = append(h.runs[k], &pastRun{id: id, state: run.Queued})
	return h.commit(k, h.event(journal.KindSubmitted, map[string]any{"digest": "d", "task": map[string]any{"run": id, "workflow": "w"}}))
}

// next returns the next commit, of one of a few sessions.
func (h *history) next() commitlog.Entry {
	k := session.Key{Tenant: session.Tenant(fmt.Sprint("t", h.random.IntN(3))), ID: session.ID(fmt.Sprint("s", h.random.IntN(20)))}
	open := h.runs[k]
	if len(open) == 0 || len(open) < 4 && h.random.IntN(6) == 0 {
		return h.submit(k, run.ID(fmt.Sprint("r", h.n)))
	}
	if h.random.IntN(20) == 0 {
		h.apart[k] = !h.apart[k]
		return h.commit(k, h.event(journal.KindQuarantined, journal.Quarantined{Reason: "odd", Released: !h.apart[k]}))
	}
	r := open[0]
	node := fmt.Sprint("n", h.random.IntN(4))
	end := func(state run.State) commitlog.Entry {
		h.runs[k] = open[1:]
		return h.commit(k, h.event(journal.KindEnded, journal.Ended{Attempt: r.attempt, Run: r.id, State: state, Workflow: "w"}))
	}
	claim := func() commitlog.Entry {
		r.attempt++
		r.state = run.Running
		return h.commit(k,
			h.event(journal.KindWriter, journal.WriterOpened{Incarnation: node}),
			h.event(journal.KindClaimed, journal.Claimed{Attempt: r.attempt, Home: k, Incarnation: node, Run: r.id, Workflow: "w"}))
	}
	switch r.state {
	case run.Queued:
		if h.random.IntN(10) == 0 {
			return end(run.Cancelled)
		}
		return claim()
	case run.NeedsReview:
		r.state = run.Queued
		return h.commit(k, h.event(journal.KindResolved, journal.Resolved{Decision: run.Again, Reason: "fine", Run: r.id, Workflow: "w", Revision: node}))
	case run.Waiting:
		r.waits--
		v := journal.SignalReceived{Kind: journal.Respond, Run: r.id, Path: run.Path(fmt.Sprint(r.waits)), N: 1, Workflow: "w"}
		if r.waits == 0 {
			r.state, v.Wake = run.Queued, 1
		}
		return h.commit(k, h.event(journal.KindSignalReceived, v))
	}
	switch h.random.IntN(9) {
	case 0:
		return claim() // its node died
	case 1:
		r.state = run.Queued
		return h.commit(k, h.event(journal.KindReleased, journal.Released{Attempt: r.attempt, Reason: "drain", Run: r.id, Workflow: "w", Revision: node}))
	case 2:
		r.state = run.NeedsReview
		return h.commit(k, h.event(journal.KindReview, journal.Review{Attempt: r.attempt, Expires: epoch.Add(time.Hour).UnixMilli(), Reason: "odd", Run: r.id}))
	case 3:
		return h.commit(k, h.event(journal.KindRebudgeted, journal.Rebudgeted{Run: r.id, Budget: run.Budget{Time: time.Duration(1+h.random.IntN(9)) * time.Hour}}))
	case 4, 5:
		r.state, r.waits = run.Waiting, 1+h.random.IntN(3)
		v := journal.RunWaiting{Attempt: r.attempt, Run: r.id}
		for i := range r.waits {
			v.For = append(v.For, journal.Wait{Kind: "await", Path: run.Path(fmt.Sprint(i)), Due: epoch.Add(time.Hour).UnixMilli()})
		}
		return h.commit(k, h.event(journal.KindRunWaiting, v))
	case 6:
		if r.fanned {
			return h.commit(k, h.event(journal.KindBranchOutcomes, journal.BranchOutcomes{Run: r.id, Branches: []run.BranchOutcome{
				{Session: session.ID("b0-" + r.id), State: session.ClosedMerged}, {Session: session.ID("b1-" + r.id), State: session.ClosedRejected},
			}}))
		}
		r.fanned = true
		return h.commit(k, h.event(journal.KindFanOut, journal.FanOut{
			Ancestors: []journal.Ancestor{{Run: r.id, Session: k.ID}}, Path: "0", Root: k.ID, Run: r.id, Workflow: "w",
			Branches: []journal.FanOutBranch{{Name: "b0", Session: session.ID("b0-" + r.id)}, {Name: "b1", Session: session.ID("b1-" + r.id)}},
		}))
	}
	return end(run.Succeeded)
}

// settleSome settles follow-ups as answers do.
func (s *Scheduler) settleSome(random *rand.Rand) {
	for _, o := range s.sessions {
		for _, d := range slices.Clone(o.FollowUps) {
			for _, f := range d.items {
				if !f.over && random.IntN(10) == 0 {
					s.settle(f)
					s.refresh(epoch, o)
				}
			}
		}
	}
}

// stateOf returns the pages' state of each session, without its follow-ups, and the open
// follow-ups, by their commits.
func (s *Scheduler) stateOf(tb testing.TB) (state map[session.Key]string, owed map[string]bool) {
	tb.Helper()
	state, owed = map[session.Key]string{}, map[string]bool{}
	for k, o := range s.sessions {
		for _, d := range o.FollowUps {
			for _, i := range d.Open {
				owed[fmt.Sprintf("%06d %d", d.Token, i)] = true
			}
		}
		if len(o.Runs) == 0 && !o.Quarantined {
			continue
		}
		bare := *o
		bare.FollowUps = nil
		if o.holder == "" { // only then it decides more than which node is asked first
			bare.Writer = ""
		}
		data := must.Get(json.Marshal(bare))(tb)
		state[k] = string(data)
	}
	return state, owed
}

func (s *Scheduler) fold(tb testing.TB, e commitlog.Entry) {
	tb.Helper()
	must.Do(tb, s.Fold(epoch, e, journal.Facts(e.Commit)))
}

// TestPagesWhileFolding collects the pages one by one while their runs continue, and
// restores them. With the later commits the open set equals that of a scheduler that never
// stopped; only follow-ups that were settled since then are open again.
func TestPagesWhileFolding(t *testing.T) {
	for seed := range uint64(400) {
		h := newHistory(t, seed)
		s := New(&Options{Self: "relay"})
		pages := map[int][]byte{}
		var log []commitlog.Entry
		stored, then := 0, map[string]bool{} // the last root, and the follow-ups that were open then
		commit := func() {
			e := h.next()
			log = append(log, e)
			s.fold(t, e)
			s.settleSome(h.random)
		}
		for range 3 { // roots, each with the changes since the one before
			for range h.random.IntN(200) {
				commit()
			}
			for more := true; more; {
				some, m := must.Pair(s.Pages.Take(1 + h.random.IntN(3)))(t)
				maps.Copy(pages, some)
				if more = m; more && h.random.IntN(2) == 0 {
					commit()
				}
			}
			stored = len(log)
			_, then = s.stateOf(t)
		}
		for range h.random.IntN(50) {
			commit()
		}
		r := restored(t, s.Pages.Count(), pages)
		for _, e := range log[stored:] {
			r.fold(t, e)
		}
		want, open := s.stateOf(t)
		got, again := r.stateOf(t)
		if !maps.Equal(want, got) {
			for k := range want {
				if want[k] != got[k] {
					t.Logf("%s: never stopped %s\nrestored %s", k, want[k], got[k])
				}
			}
			t.Fatalf("seed %d: %d sessions are open, %d were restored", seed, len(want), len(got))
		}
		for f := range open {
			if !again[f] {
				t.Fatalf("seed %d: the follow-up %s is lost", seed, f)
			}
		}
		for f := range again {
			if !then[f] && f <= fmt.Sprintf("%06d", stored+1) {
				t.Fatalf("seed %d: the follow-up %s was settled before commit %d, and is open again", seed, f, stored)
			}
		}
	}
}

// restored returns a scheduler that continues from pages.
func restored(tb testing.TB, count int, pages map[int][]byte) *Scheduler {
	tb.Helper()
	stored := make([][]byte, count)
	for i, data := range pages {
		stored[i] = data
	}
	s := must.Get(Restore(&Options{Self: "relay"}, epoch, stored))(tb)
	return s
}

// TestManyPages saves 60,000 waiting runs and restores them. After that only the changed
// pages are to be stored.
func TestManyPages(t *testing.T) {
	const runs = 60_000
	s, h := waitingRuns(t, runs)
	pages := allPages(t, s)
	for i, data := range pages {
		if len(data) > 256<<10 {
			t.Errorf("page %d of %d, of %d runs, has %d bytes", i, len(pages), runs, len(data))
		}
	}
	r := restored(t, s.Pages.Count(), pages)
	want, _ := s.stateOf(t)
	got, _ := r.stateOf(t)
	if len(got) != runs || !maps.Equal(want, got) {
		t.Errorf("%d runs were restored of %d, or in another state", len(got), runs)
	}
	r.Begin(epoch)
	for range r.Next(epoch) {
	}
	if n := len(allPages(t, r)); n > 0 {
		t.Errorf("%d pages are to be stored though nothing has changed", n)
	}
	for i := range 10 {
		k := session.Key{Tenant: "t", ID: session.ID(fmt.Sprint("s", i))}
		r.fold(t, h.commit(k, h.event(journal.KindSignalReceived, journal.SignalReceived{Kind: journal.Respond, N: 1, Path: "0", Run: run.ID(fmt.Sprint("r", i)), Wake: 1, Workflow: "w"})))
	}
	if n := len(allPages(t, r)); n == 0 || n > 10 {
		t.Errorf("%d pages are to be stored after 10 commits", n)
	}
}

// waitingRuns returns a scheduler with n runs that wait for two weeks.
func waitingRuns(tb testing.TB, n int) (*Scheduler, *history) {
	h := newHistory(tb, 1)
	s := New(&Options{Self: "relay"})
	for i := range n {
		k, id := session.Key{Tenant: "t", ID: session.ID(fmt.Sprint("s", i))}, run.ID(fmt.Sprint("r", i))
		s.fold(tb, h.submit(k, id))
		s.fold(tb, h.commit(k, h.event(journal.KindClaimed, journal.Claimed{Attempt: 1, Home: k, Incarnation: "n1", Run: id, Workflow: "w"})))
		s.fold(tb, h.commit(k, h.event(journal.KindRunWaiting, journal.RunWaiting{Attempt: 1, Run: id, For: []journal.Wait{{
			Kind: "await", Path: "0", Due: epoch.Add(14 * 24 * time.Hour).UnixMilli(),
		}}})))
	}
	return s, h
}

func allPages(tb testing.TB, s *Scheduler) map[int][]byte {
	tb.Helper()
	pages, more, err := s.Pages.Take(s.Pages.Count())
	if err != nil || more {
		tb.Fatal(more, err)
	}
	return pages
}
