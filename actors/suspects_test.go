package actors_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
)

// suspect leaves a run in a log whose attempts were made in these groups and lost, and
// returns how it is dispatched.
func suspect(t *testing.T, log commitlog.Log, id string, groups ...int) journal.Task {
	t.Helper()
	r := queued(t, log, id)
	for i, group := range groups {
		store := start(t, log, actors.Options{Incarnation: fmt.Sprint("lost-", id, i)}).Store()
		g, err := store.Claim(t.Context(), journal.Claim{Session: r.Session, Home: r.Session, Run: r.ID, Group: group})
		if err != nil || g.State != run.Running {
			t.Fatal(g, err)
		}
		r.Seen = &journal.Seen{Attempt: g.Attempt}
	}
	return r
}

// lastClaim returns the last claim of a run.
func lastClaim(t *testing.T, log commitlog.Log, r journal.Task) (last journal.Claimed) {
	t.Helper()
	for e, err := range log.Read(t.Context(), r.Session, commitlog.Position{}) {
		must.Do(t, err)
		for _, f := range journal.Facts(e.Commit) {
			if c, ok := f.What.(journal.Claimed); ok {
				last = c
			}
		}
	}
	return last
}

// TestSuspectsShare: a node executes no more suspects concurrently than each of them
// allows, beside any number of other runs, and records how the last node ended.
func TestSuspectsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := &faults{}, holding("step0")
		sys := host(t, log, w, actors.Options{Slots: 10, LastWords: func(_ context.Context, incarnation string) string { return "end of " + incarnation }})
		accepted(t, sys, task("r0", key("s0")))
		var all []journal.Task
		for i := range 5 {
			all = append(all, suspect(t, log, fmt.Sprint("r", i+1), 0, 0))
		}
		for i, r := range all {
			want := journal.AnswerCommitted
			if i == 4 {
				want = journal.AnswerCrowded
			}
			if a, err := sys.Dispatched(t.Context(), r); err != nil || a != want {
				t.Fatalf("suspect %d: %q, %v, want %q", i+1, a, err, want)
			}
		}
		if c := lastClaim(t, log, all[0]); c.Group != 4 || c.Death != "end of lost-r11" {
			t.Errorf("claimed %+v", c)
		}
		pair := suspect(t, log, "pair", 0, 0, 4)
		if a, err := sys.Dispatched(t.Context(), pair); err != nil || a != journal.AnswerCrowded {
			t.Errorf("one of a smaller group: %q, %v", a, err)
		}
		accepted(t, sys, task("other", key("other"))) // no suspect
		close(w.hold["step0"])
		synctest.Wait()
		for _, r := range []journal.Task{all[4], pair} { // the others have recorded steps
			if a, err := sys.Dispatched(t.Context(), r); err != nil || a != journal.AnswerCommitted {
				t.Errorf("later %s: %q, %v", r.ID, a, err)
			}
		}
		if c := lastClaim(t, log, pair); c.Group != 2 {
			t.Errorf("claimed %+v", c)
		}
		synctest.Wait()
		if free := sys.Free(); free != 10 {
			t.Errorf("%d slots are free in the end", free)
		}
	})
}

// TestSuspectAlone: for a suspect that must be alone a node accepts no other runs until
// all runs there have recorded a step, or it gives up.
func TestSuspectAlone(t *testing.T) {
	for name, progress := range map[string]bool{"the others record steps": true, "another one does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, w := &faults{}, holding("step0")
				sys := host(t, log, w, actors.Options{Slots: 4, Drain: time.Second})
				accepted(t, sys, task("r0", key("s0")))
				alone, other := suspect(t, log, "alone", 0, 0, 1), queued(t, log, "other")
				if a, err := sys.Dispatched(t.Context(), alone); err != nil || a != journal.AnswerClearing {
					t.Fatalf("beside another run: %q, %v", a, err)
				}
				if _, err := sys.Dispatched(t.Context(), other); !errors.Is(err, run.ErrBusy) || sys.Free() != 0 {
					t.Errorf("meanwhile: %v, %d slots are free", err, sys.Free())
				}
				if progress {
					close(w.hold["step0"])
					synctest.Wait()
					if c := lastClaim(t, log, alone); c.Group != 1 || c.Incarnation != "n1" || state(t, log, alone.Session, alone.ID).State != run.Succeeded {
						t.Errorf("claimed %+v", c)
					}
				} else {
					time.Sleep(31 * time.Second)
					if c := lastClaim(t, log, alone); c.Incarnation == "n1" {
						t.Errorf("claimed %+v beside another run", c)
					}
				}
				if a, err := sys.Dispatched(t.Context(), other); err != nil || a != journal.AnswerCommitted {
					t.Errorf("after that: %q, %v", a, err)
				}
			})
		})
	}
}

// TestSuspectReview: the third death of a run that was alone sends it to a review,
// which has the last words, even on a node with other runs.
func TestSuspectReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := &faults{}, holding("step0")
		sys := host(t, log, w, actors.Options{Slots: 2, Drain: time.Second, LastWords: func(context.Context, string) string { return "exit status 3: panic: x" }})
		accepted(t, sys, task("r0", key("s0")))
		guilty := suspect(t, log, "guilty", 0, 0, 1, 1, 1)
		if a, err := sys.Dispatched(t.Context(), guilty); err != nil || a != journal.AnswerCommitted {
			t.Fatalf("%q, %v", a, err)
		}
		r := state(t, log, guilty.Session, guilty.ID)
		const want = "it lost its node 5 times without a new step, the last 3 times while it ran there alone; lost-guilty4: exit status 3: panic: x"
		if r.State != run.NeedsReview || r.Review.Code != run.CodePoison || r.Review.Reason != want || sys.Free() != 1 {
			t.Errorf("%s, %+v, %d slots are free", r.State, r.Review, sys.Free())
		}
	})
}

// TestSuspectPanics: an execution that panics outside the workflow's own code is repeated
// like a run that ends its nodes, and comes to a review that has the panic.
func TestSuspectPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{}
		g := &engine.Registry{}
		must.Do(t, g.Register(flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { panic("no file") }}))
		sys := host(t, log, &work{}, actors.Options{Slots: 2, Workflows: g})
		r := task("r", key("s"))
		accepted(t, sys, r)
		time.Sleep(time.Minute)
		const want = "the last 3 times while it ran there alone; n1: panic: no file"
		if r := state(t, log, r.Session, r.ID); r.State != run.NeedsReview || !strings.HasSuffix(r.Review.Reason, want) || sys.Free() != 2 {
			t.Errorf("%s at attempt %d, %+v, %d slots are free", r.State, r.Attempt, r.Review, sys.Free())
		}
	})
}
