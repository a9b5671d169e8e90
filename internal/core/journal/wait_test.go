package journal

import (
	"fmt"
	"testing"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestWokenOnce: of each kind of wakeup the commit either offers it or claims it,
// never both, and wakes count by one.
func TestWokenOnce(t *testing.T) {
	offered, claimed := 0, 0
	for seed := range uint64(8) {
		h := newTheatre(t, seed)
		for i := range 40 { // runs, one after the other, each in a session of its own
			k, id := session.Key{Tenant: "t", ID: session.ID(fmt.Sprint("s", i))}, run.ID(fmt.Sprint("r", i))
			task := &Task{ID: id, Workflow: "w", Session: k}
			must.Do(t, h.do(k, func(w *StateMachine) error {
				_, err := w.Claim(Claim{Session: k, Home: k, Run: id, Task: task, Open: session.Opening{Kind: session.OpenLeaf}}, h.now)
				return err
			}))
			for range 50 {
				if r := h.writer(k).RunState().Run(id); r.State == run.Queued {
					h.claim(h.writer(k), r)
				} else {
					h.outside(h.writer(k), id)
				}
			}
		}
		wakes := map[run.ID]uint64{}
		for _, k := range h.log.Keys() {
			for e, err := range h.log.Read(t.Context(), k, commitlog.Position{}) {
				must.Do(t, err)
				work := must.Get(Followups(e, Facts(e.Commit)))(t)
				for i, ev := range e.Commit.Events {
					v, err := Decode[SignalReceived](ev)
					if ev.Kind != KindSignalReceived || err != nil || v.Wake == 0 {
						continue
					}
					if wakes[v.Run]++; v.Wake != wakes[v.Run] {
						t.Fatalf("seed %d: %s, commit %d: wake %d is the %d. one", seed, k, e.Commit.Seq, v.Wake, wakes[v.Run])
					}
					offers, claims := 0, 0
					for _, w := range work {
						if w.Task != nil && w.Task.ID == v.Run {
							offers++
						}
					}
					for _, after := range e.Commit.Events[i:] {
						if c, err := Decode[Claimed](after); after.Kind == KindClaimed && err == nil && c.Run == v.Run {
							claims++
						}
					}
					if offers+claims != 1 {
						t.Fatalf("seed %d: %s, commit %d: woken, it is offered %d times and claimed %d times", seed, k, e.Commit.Seq, offers, claims)
					}
					offered, claimed = offered+offers, claimed+claims
				}
			}
		}
	}
	t.Logf("%d offers, %d claims", offered, claimed)
	if offered < 100 || claimed < 100 {
		t.Errorf("%d offers and %d claims: the test shows little", offered, claimed)
	}
}

// TestTook: a step takes the outcome of a started run out of the inbox, unless its time was
// up before: a later step then takes it.
func TestTook(t *testing.T) {
	r := &Record{inbox: []SignalReceived{{Ended: &RunEnd{Run: "x"}, Kind: Outcome, N: 1, Path: "0"}}}
	for _, d := range []StepCompleted{
		{Code: run.CodeExpired, Kind: StepResult, Name: "x", Path: "1"},
		{Kind: StepResult, Name: "y", Path: "2"},
		{Kind: StepDo, Name: "x", Path: "3"},
	} {
		if r.took(d); len(r.inbox) != 1 {
			t.Fatalf("step %s took the outcome", d.Path)
		}
	}
	if r.took(StepCompleted{Kind: StepResult, Name: "x", Path: "4"}); len(r.inbox) != 0 {
		t.Error("the outcome is still in the inbox")
	}
}
