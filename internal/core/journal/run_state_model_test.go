package journal

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
)

// modelEvent is the part of an event's JSON that the model reads.
type modelEvent struct {
	Kind string `json:"-"`
	Body struct {
		Attempt        uint64
		Budget         run.Budget
		Decision, Kind string
		Group          int
		Home           struct{ Session string }
		Inbox, N, Wake uint64
		Path           run.Path
		Run            run.ID
		State          run.State
		Task           struct {
			Budget run.Budget
			Run    run.ID
		}
	}
}

// modelRun is the state of a run after the events of one log.
type modelRun struct {
	State   run.State
	Attempt uint64
	Budget  run.Budget
	Inbox   []uint64 // places
	Lost    []int    // the groups of the attempts that were lost since the last new step
	Steps   map[run.Path]uint64
}

// model reads the events of a run from the first to the last. It uses neither the types
// of the fold nor the requests that led to the events.
func model(log string, events []modelEvent) modelRun {
	last := 0 // group
	m := modelRun{Steps: map[run.Path]uint64{}}
	type message struct {
		n    uint64
		kind string
		path run.Path
	}
	var inbox []message
	for _, e := range events {
		switch b := e.Body; e.Kind {
		case "run.submitted":
			m.State, m.Budget = run.Queued, b.Task.Budget
		case "run.claimed":
			if b.Home.Session == log {
				if m.State == run.Running {
					m.Lost = append(m.Lost, last)
				}
				last = b.Group
			}
			m.State, m.Attempt = run.Running, b.Attempt
		case "run.released":
			if m.State == run.Running {
				m.State, m.Lost, last = run.Queued, nil, 0
			}
		case "run.review":
			m.State = run.NeedsReview
		case "run.waiting":
			if m.State == run.Running {
				m.State, m.Lost, last = run.Waiting, nil, 0
			}
		case "run.rebudgeted":
			m.Budget = b.Budget
		case "run.resolved":
			if b.Decision != "fail" {
				m.State, m.Lost, last = run.Queued, nil, 0
			}
		case "run.received":
			if b.Wake > 0 {
				m.State = run.Queued
			}
			if _, gathered := m.Steps[b.Path]; b.Kind != "branch" || !gathered {
				inbox = append(inbox, message{b.N, b.Kind, b.Path})
			}
		case "step.done":
			if _, again := m.Steps[b.Path]; again || b.Attempt < m.Attempt {
				continue
			}
			m.Steps[b.Path], m.Lost, last = b.Attempt, nil, 0
			var left []message
			for _, v := range inbox {
				if v.kind == "message" && v.n > b.Inbox || v.kind != "message" && v.path != b.Path {
					left = append(left, v)
				}
			}
			inbox = left
		case "run.ended":
			return modelRun{State: b.State, Attempt: m.Attempt, Budget: m.Budget, Steps: map[run.Path]uint64{}}
		}
	}
	for _, v := range inbox {
		m.Inbox = append(m.Inbox, v.n)
	}
	return m
}

// TestRunStateModel compares the fold with the model after each commit of random
// histories of the protocol.
func TestRunStateModel(t *testing.T) {
	compared := map[string]int{}
	for seed := range uint64(8) {
		h := newTheatre(t, 2000+seed)
		for range 300 {
			h.act()
		}
		for _, k := range h.log.Keys() {
			var folded RunState
			events := map[run.ID][]modelEvent{}
			for e, err := range h.log.Read(t.Context(), k, commitlog.Position{}) {
				must.Do(t, err)
				if err := folded.Fold(k, Facts(e.Commit)); err != nil {
					t.Fatalf("seed %d: commit %d of %s: %v", seed, e.Commit.Seq, k, err)
				}
				for _, ev := range e.Commit.Events {
					m := modelEvent{Kind: ev.Kind}
					must.Do(t, json.Unmarshal([]byte(ev.Data), &m.Body))
					id := m.Body.Run + m.Body.Task.Run // one of them is empty
					events[id] = append(events[id], m)
				}
				for _, r := range folded.Runs() {
					got := modelRun{State: r.State, Attempt: r.Attempt, Budget: r.Task.Budget, Steps: map[run.Path]uint64{}}
					for _, v := range r.Inbox() {
						got.Inbox = append(got.Inbox, v.N)
					}
					for _, s := range r.Steps() {
						got.Steps[s.Path] = s.Attempt
					}
					want := model(string(k.ID), events[r.ID])
					alone := len(slices.DeleteFunc(slices.Clone(want.Lost), func(group int) bool { return group != 1 }))
					if all := len(want.Lost); !r.State.Terminal() && (r.Deaths.All != all || r.Deaths.Alone != alone) {
						t.Fatalf("seed %d: run %s after commit %d of %s: deaths %+v, want %d, %d of them alone", seed, r.ID, e.Commit.Seq, k, r.Deaths, all, alone)
					}
					want.Lost = nil
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("seed %d: run %s after commit %d of %s (-model +fold):\n%s", seed, r.ID, e.Commit.Seq, k, diff)
					}
					compared[string(r.State)]++
					compared[fmt.Sprint("inbox ", min(len(got.Inbox), 1))]++
					compared[fmt.Sprint("attempt ", min(got.Attempt, 2))]++
					compared[fmt.Sprint("budget ", !got.Budget.IsZero())]++
				}
			}
		}
	}
	t.Logf("compared: %v", compared)
	for _, want := range []string{"queued", "running", "waiting", "needs_review", "succeeded", "cancelled", "inbox 1", "attempt 2", "budget true"} {
		if compared[want] == 0 {
			t.Errorf("no history has a run with %s", want)
		}
	}
}
