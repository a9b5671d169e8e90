package engine

import (
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// account is what the run may use and has used. The execution's mu guards it.
type account struct {
	journal.Account
	branches   journal.Reservations // what Account holds for them
	lost       session.Usage        // the part of what was spent that is estimated, see journal.StepCompleted
	unrecorded session.Usage        // the part of what was spent that is in no event yet
	killed     int                  // former attempts that may have been killed in a model call, not booked yet
}

// newAccount returns the account of a run as its log says.
func newAccount(r *journal.Record, limit run.Budget) account {
	a := account{Account: journal.Account{Limit: limit}.ChargeCutOff(r.Lost()), branches: r.Reservations(), lost: r.Lost(), killed: r.CutOff()}
	a.hold()
	return a
}

// hold brings the account up to date with what is reserved for branches.
func (a *account) hold() { a.Account = a.WithBranches(&a.branches) }

// charge books what a journal recorded but for the steps that skip reports.
func (a *account) charge(j *journal.Journal, skip func(*journal.Step) bool) {
	used, lost, steps := j.Spent(skip)
	a.Spent, a.Steps, a.lost = a.Spent.Add(used), a.Steps+steps, a.lost.Add(lost)
}

// book books a call that was cut off. The record of the step will hold it, or else
// the event that ends the attempt.
func (a *account) book(used session.Usage) {
	a.Account, a.lost, a.unrecorded = a.Account.ChargeCutOff(used), a.lost.Add(used), a.unrecorded.Add(used)
}

// report takes in the late end of a branch, and reports whether it is one.
func (a *account) report(v journal.SignalReceived) bool {
	if v.Kind != journal.Report || !a.branches.Awaits(v.Path, v.Branch.Link.ID) {
		return false
	}
	a.branches.Settle(v.Path, v.Branch)
	a.hold()
	return true
}

// gather gives back what was reserved for branches whose ends were gathered. The
// others have reported by now, in signals, or report late.
func (a *account) gather(at run.Path, counted []session.ID, signals []journal.SignalReceived) {
	a.branches.Gather(at, counted)
	for _, v := range signals {
		if v.Kind == journal.Report && v.Path == at {
			a.branches.Settle(at, v.Branch)
		}
	}
	a.hold()
}

// recorded takes in that the record of a step holds what was lost. If the record could
// not be committed, what its call used counts all the same.
func (a *account) recorded(lost, used session.Usage, err error) {
	if err != nil {
		a.Spent, a.unrecorded = a.Spent.Add(used), a.unrecorded.Add(used)
		return
	}
	a.killed, a.unrecorded = 0, a.unrecorded.Sub(lost)
}
