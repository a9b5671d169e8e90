package audit

import "fmt"

// account tracks the budget that a run may still give away. It never underestimates the
// remainder, because it ignores the spending of other logs.
type account struct {
	limit budget
	spent budget
	given map[string]budget // to fan-outs that were not gathered, by path
}

// spend adds the usage of a recorded step.
func (g *runState) spend(d *doneData, home bool) {
	u := d.Usage
	if u.Calls > 0 && d.Kind != "gather" && d.Kind != "join" {
		g.spent.Calls += u.Calls
		g.spent.Input += u.Input
		g.spent.Output += u.Output
		g.spent.MicroUSD += u.MicroUSD
		g.largest.Input = max(g.largest.Input, u.tokens())
		g.largest.MicroUSD = max(g.largest.MicroUSD, u.MicroUSD)
	}
	if !home {
		return
	}
	if d.Kind != "gather" && d.Kind != "join" {
		g.steps = g.steps.plus(u)
	}
	g.account.spent.Tokens += u.tokens()
	g.account.spent.MicroUSD += u.MicroUSD
	g.account.spent.Steps += 1 + d.Steps
	if d.Kind == "gather" {
		delete(g.account.given, fanoutOf(d.Path))
	}
}

// rebudgeted replaces the budget of a run.
func (f *folding) rebudgeted(_ *event, d rebudgetedData) {
	f.signal(d.ID, d.Run)
	f.a.witness.decided(f.l, "run "+d.Run, "rebudget", d.Says, d.Reason)
	r, g := f.here(d.Run)
	if !f.lives(d.Run, r, runRebudgeted) {
		return
	}
	f.a.check(Budgets, r.home, f.says(d.Run, "run.rebudgeted in the home of the run", "it elsewhere"))
	g.account.limit = d.Budget
	g.most = budget{higher(g.most.MicroUSD, d.Budget.MicroUSD), higher(g.most.Steps, d.Budget.Steps), higher(g.most.Tokens, d.Budget.Tokens)}
}

// higher returns the higher of two limits, where zero means no limit.
func higher(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// fanoutOf returns the path of the fan-out that a gather step belongs to.
func fanoutOf(path string) string {
	before, last, ok := cutLast(path, ".")
	if ok && last == "gather" {
		return before
	}
	return path
}

// reserve checks that a fan-out gives away no more than the remaining budget.
func (f *folding) reserve(d *fanoutData, g *runState) {
	n := int64(len(d.Branches))
	acc := &g.account
	for _, dim := range []struct {
		name string
		of   func(budget) int64
	}{
		{"tokens", func(b budget) int64 { return b.Tokens }},
		{"micro_usd", func(b budget) int64 { return b.MicroUSD }},
		{"steps", func(b budget) int64 { return b.Steps }},
	} {
		limit := dim.of(acc.limit)
		if limit == 0 {
			continue
		}
		left := limit - dim.of(acc.spent)
		for _, b := range acc.given {
			left -= dim.of(b)
		}
		each := dim.of(d.Budget)
		f.a.check(Budgets, each > 0 && (n == 0 || left >= 0 && each <= left/n), f.says(d.Run, // without a product, which could overflow
			fmt.Sprintf("%d branches to get at most %d %s together", n, max(left, 0), dim.name), given(each)))
	}
	if acc.given == nil {
		acc.given = map[string]budget{}
	}
	acc.given[d.Path] = budget{d.Budget.MicroUSD * n, d.Budget.Steps * n, d.Budget.Tokens * n}
}

func given(each int64) string {
	if each == 0 {
		return "no limit"
	}
	return fmt.Sprintf("%d each", each)
}

// finishBudget checks that a run exceeded its budget by one call at most, and that its
// end includes the usage of its steps and of its branches' reports.
func (a *audit) finishBudget(g *runState) {
	if g.home == nil {
		return
	}
	if g.end != nil {
		a.check(Budgets, g.end.usage.covers(g.end.lost), func() Violation {
			return g.home.says(g.end.commit, g.id, fmt.Sprintf("what is estimated to be a part of the usage, %+v", g.end.usage), fmt.Sprintf("%+v", g.end.lost))
		})
		used := g.steps.plus(g.reported).plus(g.end.unrecorded)
		a.check(Budgets, g.end.usage.covers(used), func() Violation {
			return g.home.says(g.end.commit, g.id, fmt.Sprintf("a usage of at least what its steps, the reports of its branches and its unrecorded calls say, %+v", used), fmt.Sprintf("%+v", g.end.usage))
		})
		a.check(Budgets, g.end.steps >= g.told, func() Violation {
			return g.home.says(g.end.commit, g.id, fmt.Sprintf("at least the %d steps that its branches told", g.told), fmt.Sprintf("%d", g.end.steps))
		})
	}
	within := func(unit string, limit, spent, largest int64) {
		if limit > 0 {
			a.check(Budgets, spent-largest < limit || spent == 0, func() Violation {
				return g.home.says(0, g.id, fmt.Sprintf("at most one call beyond %d %s", limit, unit), fmt.Sprintf("%d, of which one call took at most %d", spent, largest))
			})
		}
	}
	within("tokens", g.most.Tokens, g.spent.tokens(), g.largest.Input)
	within("micro-USD", g.most.MicroUSD, g.spent.MicroUSD, g.largest.MicroUSD)
}

// treeUse is the usage of a run and all branches below it, by their own logs.
type treeUse struct {
	spent    usage
	beyond   usage // one call of each run: the allowed excess over its budget
	branches int
	raised   bool // a branch has a budget other than the one from its fan-out
}

// finishTrees checks by their own logs that runs and their branches together stay
// within the budgets, which each may exceed by one call.
func (a *audit) finishTrees() {
	below := map[*runState][]*runState{}
	for k, b := range a.fanouts {
		if g := a.runs[k]; g != nil && g.home != nil {
			below[b.parent] = append(below[b.parent], g)
		}
	}
	known := map[*runState]*treeUse{}
	var use func(g *runState) treeUse
	use = func(g *runState) treeUse {
		if u := known[g]; u != nil {
			return *u
		}
		u := &treeUse{spent: g.spent, beyond: usage{Input: g.largest.Input, MicroUSD: g.largest.MicroUSD}}
		known[g] = u // runs that claim to be each other's branches count once each
		for _, b := range below[g] {
			of := use(b)
			u.spent, u.beyond, u.branches = u.spent.plus(of.spent), u.beyond.plus(of.beyond), u.branches+1+of.branches
			u.raised = u.raised || of.raised || b.most != b.budget
		}
		return *u
	}
	for g := range below {
		u := use(g)
		if g.home == nil || u.raised {
			continue
		}
		within := func(unit string, limit, spent, beyond int64) {
			if limit > 0 {
				a.check(Budgets, spent-beyond < limit || spent == 0, func() Violation {
					return g.home.says(0, g.id, fmt.Sprintf("at most %d %s for the run and its %d branches, and one call of each beyond", limit, unit, u.branches),
						fmt.Sprintf("%d, of which such calls took at most %d", spent, beyond))
				})
			}
		}
		within("tokens", g.most.Tokens, u.spent.tokens(), u.beyond.Input)
		within("micro-USD", g.most.MicroUSD, u.spent.MicroUSD, u.beyond.MicroUSD)
	}
}
