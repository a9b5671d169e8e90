package journal_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestBudget: however much is reserved, settled, lost and split, a budget is
// exceeded by at most the one call that was in flight per branch.
func TestBudget(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		limit := run.Budget{Tokens: int64(r.IntN(2000)), MicroUSD: int64(r.IntN(500)), Steps: int64(r.IntN(20))}
		branch(t, r, limit, 0)
	}
}

// branch spends from a budget and returns its usage and its largest call.
func branch(t *testing.T, r *rand.Rand, limit run.Budget, depth int) (used session.Usage, steps int64) {
	t.Helper()
	a := journal.Account{Limit: limit}
	var largest session.Usage
	branches := int64(1)
	for range 60 {
		before := a
		call := int64(1 + r.IntN(200))
		next, err := a.Reserve(call)
		spent := limit.Tokens > 0 && a.Spent.Tokens() >= limit.Tokens || limit.MicroUSD > 0 && a.Spent.MicroUSD >= limit.MicroUSD || limit.Steps > 0 && a.Steps >= limit.Steps
		if (err != nil) != spent || err != nil && !errors.Is(err, run.ErrBudget) {
			t.Fatalf("Reserve of %+v with limit %+v: %v", a, limit, err)
		}
		if a != before || err != nil && next != a {
			t.Fatal("a refused or older account changed")
		}
		if err != nil {
			break
		}
		left := next.Left()
		if limit.Tokens > 0 && left.Tokens > max(limit.Tokens-next.Spent.Tokens()-call, 0) || left.Tokens < 0 || left.MicroUSD < 0 || left.Steps < 0 {
			t.Fatalf("left %+v of %+v", left, next)
		}
		cost := session.Usage{Calls: 1, Input: r.Int64N(call + 1), MicroUSD: int64(r.IntN(50))}
		cost.Output = call - cost.Input
		switch {
		case r.IntN(8) == 0: // cut off: it counts as all that was reserved
			a = next.Settle(call, 1, session.Usage{}).ChargeCutOff(session.Usage{Calls: 1, Input: call})
			cost = session.Usage{Calls: 1, Input: call}
		default:
			a = next.Settle(call, 1, cost)
		}
		if a.Reserved != 0 {
			t.Fatalf("%d tokens stay reserved", a.Reserved)
		}
		largest.Input, largest.MicroUSD = max(largest.Input, cost.Tokens()), max(largest.MicroUSD, cost.MicroUSD)
		if depth < 2 && r.IntN(10) == 0 {
			n := 1 + r.IntN(4)
			part, err := a.Split(n)
			if err != nil {
				if !errors.Is(err, run.ErrBudget) {
					t.Fatal(err)
				}
				continue
			}
			left := a.Left()
			if part.Tokens*int64(n) > left.Tokens || part.MicroUSD*int64(n) > left.MicroUSD || part.Steps*int64(n) > left.Steps ||
				limit.Tokens > 0 && part.Tokens == 0 || limit.MicroUSD > 0 && part.MicroUSD == 0 || limit.Steps > 0 && part.Steps == 0 {
				t.Fatalf("%d parts of %+v are %+v each", n, left, part)
			}
			for range n {
				u, s := branch(t, r, part, depth+1)
				a.Spent, a.Steps = a.Spent.Add(u), a.Steps+s
			}
			branches += int64(n)
			largest.Input, largest.MicroUSD = max(largest.Input, 200), max(largest.MicroUSD, 50)
		}
	}
	over := session.Usage{Input: largest.Input * branches * 5, MicroUSD: largest.MicroUSD * branches * 5}
	if branches == 1 {
		over = largest
	}
	if limit.Tokens > 0 && a.Spent.Tokens() > limit.Tokens+over.Input || limit.MicroUSD > 0 && a.Spent.MicroUSD > limit.MicroUSD+over.MicroUSD || limit.Steps > 0 && a.Steps > limit.Steps {
		t.Fatalf("spent %+v in %d steps of %+v in %d branches; the largest call took %+v", a.Spent, a.Steps, limit, branches, largest)
	}
	return a.Spent, a.Steps
}

func TestBudgetLimits(t *testing.T) {
	a := journal.Account{Limit: run.Budget{Tokens: 100}}
	a, err := a.Reserve(60)
	must.Do(t, err)
	if a, err = a.Reserve(60); err != nil { // the last call may exceed it
		t.Fatal(err)
	}
	if _, err := a.Reserve(1); !errors.Is(err, run.ErrBudget) {
		t.Errorf("two calls may exceed the budget: %v", err)
	}
	if got := a.Left().Tokens; got != 0 {
		t.Errorf("%d tokens are left", got)
	}
	var none journal.Account
	if _, err := none.Reserve(1 << 40); err != nil {
		t.Errorf("no limit: %v", err)
	}
	if part, err := none.Split(1000); err != nil || !part.IsZero() {
		t.Errorf("a part of no limit is %+v, %v", part, err)
	}
	timed := journal.Account{Limit: run.Budget{Time: time.Minute}}
	if part, err := timed.Split(3); err != nil || part.Time != time.Minute {
		t.Errorf("time is not divided among branches that run at once: %+v, %v", part, err)
	}
}
