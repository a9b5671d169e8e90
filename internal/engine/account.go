package engine

import (
	"cmp"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// account is the budget of a run and its usage. The execution's mu guards it.
type account struct {
	journal.Account
	branches   journal.Reservations // Account's reservations for branches
	lost       session.Usage        // the estimated part of Spent, see journal.StepCompleted
	unrecorded session.Usage        // the part of Spent that no event has yet
	killed     int                  // former attempts that may have been killed in a model call, not booked yet
}

// newAccount returns the account of a run from its log.
func newAccount(r *journal.Record, limit run.Budget) account {
	a := account{Account: journal.Account{Limit: limit}.ChargeCutOff(r.Lost()), branches: r.Reservations(), lost: r.Lost(), killed: r.CutOff()}
	a.hold()
	return a
}

// hold updates the account with the reservations for branches.
func (a *account) hold() { a.Account = a.WithBranches(&a.branches) }

// charge books the usage that a journal recorded, except for the steps that skip reports.
func (a *account) charge(j *journal.Journal, skip func(*journal.Step) bool) (used, lost session.Usage, steps int64) {
	used, lost, steps = j.Spent(skip)
	a.Spent, a.Steps, a.lost = a.Spent.Add(used), a.Steps+steps, a.lost.Add(lost)
	a.Unpriced = cmp.Or(a.Unpriced, j.Unpriced())
	return used, lost, steps
}

// book books a call that was cut off. The record of its step, or else the event that ends
// the attempt, will include it.
func (a *account) book(used session.Usage) {
	a.Account, a.lost, a.unrecorded = a.Account.ChargeCutOff(used), a.lost.Add(used), a.unrecorded.Add(used)
}

// report settles the late end of a branch, and reports whether v is one.
func (a *account) report(v journal.SignalReceived) bool {
	if v.Kind != journal.Report || !a.branches.Awaits(v.Path, v.Branch.Link.ID) {
		return false
	}
	a.branches.Settle(v.Path, v.Branch)
	a.hold()
	return true
}

// gather releases the reservations for branches whose ends were gathered. The others have
// reported in signals, or report later.
func (a *account) gather(at run.Path, counted []session.ID, signals []journal.SignalReceived) {
	a.branches.Gather(at, counted)
	for _, v := range signals {
		if v.Kind == journal.Report && v.Path == at {
			a.branches.Settle(at, v.Branch)
		}
	}
	a.hold()
}

// recorded notes that the record of a step includes lost usage. If the record could not
// be committed, the usage of its call counts anyway.
func (a *account) recorded(lost, used session.Usage, err error) {
	if err != nil {
		a.Spent, a.unrecorded = a.Spent.Add(used), a.unrecorded.Add(used)
		return
	}
	a.killed, a.unrecorded = 0, a.unrecorded.Sub(lost)
}
