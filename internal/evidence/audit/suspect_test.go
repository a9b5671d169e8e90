package audit_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestRecordedSuspects: the auditor accepts each history of claims that a store accepts, by
// nodes that died and by one that lives and has lost the log, and finds a group that is too
// large.
func TestRecordedSuspects(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := range uint64(40) {
		f, r, node := &fleet{}, rand.New(rand.NewPCG(seed, 5)), 0
		open := func() journal.Store {
			return journal.NewStore(&f.log, &journal.StoreOptions{Incarnation: fmt.Sprint("n", node)})
		}
		first := journal.Claim{Session: home, Home: home, Run: "r", Task: &journal.Task{ID: "r", Workflow: "w", Session: home}, Open: session.Opening{Kind: session.OpenLeaf}}
		must.Get(open().Claim(t.Context(), first))(t)
		for range 30 {
			death := ""
			switch r.IntN(5) {
			case 0: // lives
				seen["lives"]++
			case 1:
				death = "panic: x"
			default:
				node++
			}
			store := open()
			g, err := store.Claim(t.Context(), journal.Claim{Session: home, Home: home, Run: "r", Group: r.IntN(4), Death: death})
			if _, suspect := errors.AsType[*journal.SuspectError](err); suspect {
				seen["refused"]++
				continue
			}
			must.Do(t, err)
			if g.State == run.NeedsReview {
				seen["review"]++
				must.Do(t, store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Resolve: &journal.Resolved{Decision: run.Again, Reason: "looked", Run: "r"}}))
			}
		}
		report := must.Get(audit.Run(t.Context(), f.messages(t), &audit.Options{Schemas: schemas}))(t)
		if v := violations(report); v != "" {
			t.Fatalf("seed %d: %s", seed, v)
		}
		if seed == 0 {
			f.finds(t, `"group":`, `"group":1`, "a group of at most")
		}
	}
	for _, what := range []string{"lives", "refused", "review"} {
		if seen[what] < 20 {
			t.Errorf("%s: %d times", what, seen[what])
		}
	}
}
