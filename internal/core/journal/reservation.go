package journal

import (
	"maps"
	"slices"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Reservations is the budget of branches whose usage the run has not learned yet: open
// branches, and branches without which the join was decided, which may run until they
// are cancelled and report their usage. It is not safe for concurrent use.
type Reservations struct {
	// Late is the usage of branches that reported their end after the join was decided.
	// No step's record contains it.
	Late      session.Usage `json:"late,omitzero"`
	LateSteps int64         `json:"late_steps,omitempty"` // of the same branches
	Open      []reservation `json:"open,omitempty"`
	// Parts are the parts whose reported usage differed from the counted one; see Part.
	Parts map[session.ID]Part `json:"parts,omitempty"`
}

// reservation is the budget of the branches of one fan-out.
type reservation struct {
	// Branches are the branches whose usage is unknown.
	Branches []session.ID `json:"branches"`
	Decided  bool         `json:"decided,omitempty"` // their reports will come late
	Warming  bool         `json:"held,omitempty"`    // only the first one has started
	Part     run.Budget   `json:"part,omitzero"`     // of each
	Path     run.Path     `json:"path"`              // of the step that gathers
}

// Total is the sum of all reservations.
func (e *Reservations) Total() run.Budget {
	var sum run.Budget
	for _, a := range e.Open {
		n := int64(len(a.Branches))
		sum.MicroUSD += a.Part.MicroUSD * n
		sum.Steps += a.Part.Steps * n
		sum.Tokens += a.Part.Tokens * n
	}
	return sum
}

// Awaits reports whether the end of a branch will come late: the join was decided
// without the branch, and the branch has not reported its usage.
func (e *Reservations) Awaits(gather run.Path, branch session.ID) bool {
	i := e.at(gather)
	return i >= 0 && e.Open[i].Decided && slices.Contains(e.Open[i].Branches, branch)
}

// Gather removes the branches whose usage the gathering step records, and those that
// never started and never will.
func (e *Reservations) Gather(gather run.Path, counted []session.ID) {
	i := e.at(gather)
	if i < 0 {
		return
	}
	a := &e.Open[i]
	if a.Warming {
		a.Branches, a.Warming = a.Branches[:1], false
	}
	a.Decided = true
	e.drop(i, counted...)
}

// Settle records the usage of a late branch, once. No step's record contains it.
func (e *Reservations) Settle(gather run.Path, b *BranchEnd) {
	if i := e.at(gather); i >= 0 && slices.Contains(e.Open[i].Branches, b.Link.ID) {
		e.Late, e.LateSteps = e.Late.Add(b.Usage), e.LateSteps+b.Steps
		e.drop(i, b.Link.ID)
	}
}

// owed returns the assumed usage of the branches of a run that ends now. A branch that
// reported its usage, at the latest by a report in the inbox, counts with that usage.
// The other branches count with their whole budget where it is limited; bound is their
// part of the usage.
func (e *Reservations) owed(inbox []SignalReceived) (used, bound session.Usage, steps int64) {
	told := map[session.ID]*BranchEnd{}
	for _, v := range inbox {
		if v.Kind == Report && v.Branch != nil {
			told[v.Branch.Link.ID] = v.Branch
		}
	}
	used, steps = e.Late, e.LateSteps
	for _, a := range e.Open {
		for i, id := range a.Branches {
			b, ok := told[id]
			switch {
			case ok:
				used, steps = used.Add(b.Usage), steps+b.Steps
			case i == 0 || !a.Warming:
				steps += a.Part.Steps
				bound = bound.Add(session.Usage{Input: a.Part.Tokens, MicroUSD: a.Part.MicroUSD})
			}
		}
	}
	return used.Add(bound), bound, steps
}

// keepOpen keeps only the estimates of a run's end: for branches that may still execute
// and have not reported. They report to a run that has ended.
func (e *Reservations) keepOpen(inbox []SignalReceived) {
	told := map[session.ID]bool{}
	for _, v := range inbox {
		if v.Kind == Report && v.Branch != nil {
			told[v.Branch.Link.ID] = true
		}
	}
	for i := range e.Open {
		a := &e.Open[i]
		if a.Warming { // the others never start
			a.Branches, a.Warming = a.Branches[:1], false
		}
		a.Branches = slices.DeleteFunc(a.Branches, func(id session.ID) bool { return told[id] })
	}
	e.Open = slices.DeleteFunc(e.Open, func(a reservation) bool { return len(a.Branches) == 0 })
	e.Late, e.LateSteps = session.Usage{}, 0 // the end counts it
	if len(e.Open) == 0 {
		e.Open = nil
	}
}

// holds returns the index of the reservation for a branch, -1 without one.
func (e *Reservations) holds(branch session.ID) int {
	return slices.IndexFunc(e.Open, func(a reservation) bool { return slices.Contains(a.Branches, branch) })
}

// opened adds the branches of a fan-out.
func (e *Reservations) opened(f FanOut) {
	if e.at(GatherPath(f.Path)) >= 0 || len(f.Branches) == 0 {
		return
	}
	a := reservation{Warming: f.WarmFirst && len(f.Branches) > 1, Part: f.Budget, Path: GatherPath(f.Path)}
	for _, b := range f.Branches {
		a.Branches = append(a.Branches, b.Session)
	}
	e.Open = append(e.Open, a)
}

// releaseBranches records that all branches of the fan-out at a path start.
func (e *Reservations) releaseBranches(p run.Path) {
	if i := e.at(GatherPath(p)); i >= 0 {
		e.Open[i].Warming = false
	}
}

// clone returns an independent copy.
func (e *Reservations) clone() Reservations {
	cp := Reservations{Late: e.Late, LateSteps: e.LateSteps, Open: slices.Clone(e.Open), Parts: maps.Clone(e.Parts)}
	for i := range cp.Open {
		cp.Open[i].Branches = slices.Clone(cp.Open[i].Branches)
	}
	return cp
}

func (e *Reservations) at(gather run.Path) int {
	return slices.IndexFunc(e.Open, func(a reservation) bool { return a.Path == gather })
}

func (e *Reservations) drop(i int, branches ...session.ID) {
	a, gone := &e.Open[i], map[session.ID]bool{}
	for _, id := range branches {
		gone[id] = true
	}
	a.Branches = slices.DeleteFunc(a.Branches, func(id session.ID) bool { return gone[id] })
	if len(a.Branches) > 0 {
		return
	}
	if e.Open = slices.Delete(e.Open, i, i+1); len(e.Open) == 0 {
		e.Open = nil
	}
}

// Reservations returns the reservations for the run's branches.
func (r *Record) Reservations() Reservations { return r.reserved.clone() }

// owed returns the usage and steps of the run's branches for the event that ends the
// run, without those that its steps recorded. bound is the estimated part of the usage.
func (r *Record) owed() (used, bound session.Usage, steps int64) { return r.reserved.owed(r.inbox) }
