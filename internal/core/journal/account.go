package journal

import (
	"fmt"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Account is a budget with the usage so far and the reservations of calls in flight. It
// is a value: operations return a new one.
type Account struct {
	Limit    run.Budget
	Spent    session.Usage
	Steps    int64
	Reserved int64      // tokens
	Branches run.Budget // for branches that have not reported their usage
	// Unpriced is a model whose calls have an unknown cost, "" if there is none.
	Unpriced string
	// Late and LateSteps are the usage of branches, beside Spent and Steps; see
	// Reservations.
	Late      session.Usage
	LateSteps int64
	// Deferred is the number of steps that are reserved for compensations.
	Deferred int64
}

// Reserve reserves tokens for a call before it starts; it fails with ErrBudget if the
// budget is used up. The last call may exceed the limit, because its size is unknown
// before it ends: by one call, never by two.
func (a Account) Reserve(tokens int64) (Account, error) {
	if l, steps := a.Limit.Steps, a.Steps+a.LateSteps; l > 0 && steps+a.Branches.Steps+a.Deferred >= l {
		return a, fmt.Errorf("%w: %d of %d steps used%s%s; raise budget.steps", run.ErrBudget, steps, l, unsettled(a.Branches.Steps), deferred(a.Deferred))
	}
	used := a.Spent.Add(a.Late)
	if l := a.Limit.Tokens; l > 0 && used.Tokens()+a.Reserved+a.Branches.Tokens >= l {
		return a, fmt.Errorf("%w: %d of %d tokens used, %d reserved%s; raise budget.tokens", run.ErrBudget, used.Tokens(), l, a.Reserved, unsettled(a.Branches.Tokens))
	}
	if l := a.Limit.MicroUSD; l > 0 && used.MicroUSD+a.Branches.MicroUSD >= l {
		return a, fmt.Errorf("%w: %d of %d micro-USD used%s; raise budget.micro_usd", run.ErrBudget, used.MicroUSD, l, unsettled(a.Branches.MicroUSD))
	}
	if l := a.Limit.MicroUSD; l > 0 && a.Unpriced != "" {
		return a, fmt.Errorf("%w: %d micro-USD cannot be enforced: the cost of calls of model %s is unknown; give it prices in the node's list of models, or omit budget.micro_usd and set budget.tokens", run.ErrBudget, l, a.Unpriced)
	}
	a.Reserved += tokens
	return a, nil
}

// Check returns an error if no further step may start.
func (a Account) Check() error {
	_, err := a.Reserve(0)
	return err
}

// unsettled describes the budget that branches may still use.
func unsettled(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d reserved for branches without a report", n)
}

// deferred describes the steps that are reserved for compensations.
func deferred(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d reserved for compensations", n)
}

// Settle adds steps and the usage of their calls, and releases a reservation.
func (a Account) Settle(reserved, steps int64, used session.Usage) Account {
	a.Reserved -= reserved
	a.Spent = a.Spent.Add(used)
	a.Steps += steps
	return a
}

// ChargeCutOff adds the estimated usage of calls that were cut off, because no server
// reports it. The received part of the answer is known, and the prompt can be counted;
// a call whose process died counts with its whole reservation. The cost follows from
// the model's prices, and is unknown without them.
func (a Account) ChargeCutOff(used session.Usage) Account {
	a.Spent = a.Spent.Add(used)
	return a
}

// Left returns the remaining budget; unlimited fields stay zero.
func (a Account) Left() run.Budget {
	left, used := run.Budget{Time: a.Limit.Time}, a.Spent.Add(a.Late)
	if l := a.Limit.Tokens; l > 0 {
		left.Tokens = max(l-used.Tokens()-a.Reserved-a.Branches.Tokens, 0)
	}
	if l := a.Limit.MicroUSD; l > 0 {
		left.MicroUSD = max(l-used.MicroUSD-a.Branches.MicroUSD, 0)
	}
	if l := a.Limit.Steps; l > 0 {
		left.Steps = max(l-a.Steps-a.LateSteps-a.Branches.Steps-a.Deferred, 0)
	}
	return left
}

// WithBranches returns the account with the current reservations for branches. The
// usage in the record of a gathering step is settled like that of other steps.
func (a Account) WithBranches(e *Reservations) Account {
	a.Branches, a.Late, a.LateSteps = e.Total(), e.Late, e.LateSteps
	return a
}

// Split gives each of n branches an equal part of the remaining budget. The sum of the
// parts never exceeds it. If a limited part rounds to zero, Split returns ErrBudget,
// because zero would mean unlimited.
func (a Account) Split(n int) (run.Budget, error) {
	left := a.Left()
	part := left
	if n > 0 {
		part.Tokens /= int64(n)
		part.MicroUSD /= int64(n)
		part.Steps /= int64(n)
	}
	if a.Limit.Tokens > 0 && part.Tokens == 0 || a.Limit.MicroUSD > 0 && part.MicroUSD == 0 || a.Limit.Steps > 0 && part.Steps == 0 {
		return run.Budget{}, fmt.Errorf("%w: the rest is not enough for %d branches", run.ErrBudget, n)
	}
	return part, nil
}
