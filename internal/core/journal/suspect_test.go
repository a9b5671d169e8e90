package journal_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// suspicion is the naive model of a run that loses its nodes: the groups of the attempts
// that were lost since its last new step, the oldest first.
type suspicion []int

// asks returns the largest group with which the run may be claimed next, 0 for any.
func (s suspicion) asks() int {
	if len(s) < 2 {
		return 0
	}
	if last := s[len(s)-1]; last > 0 {
		return max(1, last/2)
	}
	return 4
}

func (s suspicion) alone() (n int) {
	for _, group := range s {
		if group == 1 {
			n++
		}
	}
	return n
}

// TestSuspects: the naive model predicts the effect of claims, steps, releases and
// decisions for a run whose nodes die, for any claimant and any promise.
func TestSuspects(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		log := &commitlog.Memory{}
		k := session.Key{Tenant: session.DefaultTenant, ID: "home"}
		node := 0
		var store journal.Store
		restart := func() { // of the activation alone, in the same process
			store = journal.NewStore(log, &journal.StoreOptions{Incarnation: fmt.Sprint("n", node)})
		}
		start := func() {
			node++
			restart()
		}
		start()
		g := must.Get(store.Claim(t.Context(), journal.Claim{
			Session: k, Home: k, Run: "r", Task: &journal.Task{ID: "r", Workflow: "work", Session: k}, Open: session.Opening{Kind: session.OpenLeaf},
		}))(t)
		var lost suspicion
		group, steps, running, owned := 0, 0, true, true // by the node that started last
		by := node
		for i := range 120 {
			what := fmt.Sprintf("seed %d, action %d, lost %v in group %d", seed, i, lost, group)
			commit := func(kind string, payload any, path run.Path) {
				e, err := journal.NewEvent(kind, payload)
				if err == nil {
					_, err = store.Commit(t.Context(), journal.Batch{Session: k, Run: "r", Attempt: g.Attempt, Path: path, Events: []session.Event{e}})
				}
				if err != nil {
					t.Fatalf("%s: %s: %v", what, kind, err)
				}
			}
			switch n := r.IntN(12); {
			case n == 0 && owned:
				path := run.Path(fmt.Sprint(steps))
				steps++
				commit(journal.KindStepCompleted, journal.StepCompleted{Attempt: g.Attempt, Kind: journal.StepDo, Name: "n", Path: path, Run: "r"}, path)
				lost, group = nil, 0
				seen["step"]++
			case n == 1 && owned && seed%2 == 0:
				commit(journal.KindReleased, journal.Released{Attempt: g.Attempt, Reason: "shutdown", Run: "r", Workflow: "work"}, "")
				lost, group, running, owned = nil, 0, false, false
				seen["release"]++
			default:
				alive, words := running && by == node && r.IntN(3) == 0, "exit status 3"
				if alive && seed%3 > 0 { // else it reports a panic
					words = ""
				}
				if alive {
					restart()
				} else {
					start()
				}
				before := lost
				if running && words != "" {
					lost = append(slices.Clip(lost), group)
				}
				guilty, want := lost.alone() >= 3, lost.asks()
				if words == "" {
					want = group
					seen["alive"]++
				}
				promise := r.IntN(6)
				claim := journal.Claim{Session: k, Home: k, Run: "r", Group: promise, Death: words}
				got, err := store.Claim(t.Context(), claim)
				suspect, refused := errors.AsType[*journal.SuspectError](err)
				wantRefused := want > 0 && (promise == 0 || promise > want && !guilty)
				if refused != wantRefused || refused && (suspect.Group != want || suspect.Guilty != guilty || !errors.Is(err, run.ErrBusy)) || !refused && err != nil {
					t.Fatalf("%s: promise %d, guilty %v, want a group of %d: %v", what, promise, guilty, want, err)
				}
				if refused {
					lost, owned = before, false // no event was written: the next claim finds the same state
					seen["refused"]++
					continue
				}
				if guilty {
					if got.State != run.NeedsReview || got.Record.Review.Code != run.CodePoison || !strings.HasSuffix(got.Record.Review.Reason, ": exit status 3") {
						t.Fatalf("%s: %s, review %+v", what, got.State, got.Record.Review)
					}
					err := store.Apply(t.Context(), journal.Signal{To: k, Run: "r", Resolve: &journal.Resolved{Decision: run.Again, Reason: "looked", Run: "r"}})
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					lost, group, running, owned = nil, 0, false, false
					seen["review"]++
					continue
				}
				if got.State != run.Running {
					t.Fatalf("%s: %s", what, got.State)
				}
				g, running, owned, by = got, true, true, node
				if group = promise; want == 0 {
					group = 0
				}
				seen["claim"]++
			}
		}
	}
	t.Log(seen)
	for _, want := range []string{"step", "release", "refused", "review", "claim", "alive"} {
		if seen[want] < 50 {
			t.Errorf("%s: %d times", want, seen[want])
		}
	}
}
