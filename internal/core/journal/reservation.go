package journal

import (
	"maps"
	"slices"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Reservations is what the branches of a run may use, as long as the run does not
// know what they did use: an open branch, and one that the join was decided
// without, which may be at work until it is cancelled and tells so. It is not
// safe for concurrent use.
type Reservations struct {
	// Late is what branches have used that told of their end after the join was
	// decided: no step's record says it.
	Late      session.Usage `json:"late,omitzero"`
	LateSteps int64         `json:"late_steps,omitempty"` // of the same branches
	Open      []reservation `json:"open,omitempty"`
	// Parts are those that reported other usage than the run had counted; see Part.
	Parts map[session.ID]Part `json:"parts,omitempty"`
}

// reservation is what the branches of one fan-out may use.
type reservation struct {
	// Branches are those of which it is not known what they used.
	Branches []session.ID `json:"branches"`
	Decided  bool         `json:"decided,omitempty"` // their end comes late
	Warming  bool         `json:"held,omitempty"`    // only the first one has begun
	Part     run.Budget   `json:"part,omitzero"`     // of each
	Path     run.Path     `json:"path"`              // of the step that gathers
}

// Total is what is reserved in all.
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

// Awaits reports whether the end of a branch will come late: the join was
// decided without it, and it has not told what it used.
func (e *Reservations) Awaits(gather run.Path, branch session.ID) bool {
	i := e.at(gather)
	return i >= 0 && e.Open[i].Decided && slices.Contains(e.Open[i].Branches, branch)
}

// Gather takes out the branches whose usage the step that gathers records, and
// those that never began and never will.
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

// Settle books what a branch used that no step's record says; once.
func (e *Reservations) Settle(gather run.Path, b *BranchEnd) {
	if i := e.at(gather); i >= 0 && slices.Contains(e.Open[i].Branches, b.Link.ID) {
		e.Late, e.LateSteps = e.Late.Add(b.Usage), e.LateSteps+b.Steps
		e.drop(i, b.Link.ID)
	}
}

// owed is what a run that ends now takes its branches to have used: known are
// those that have told it, by a report in the inbox if not before. The others
// count with all that they may use, as far as that is limited; bound says that
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

// keepOpen leaves the estimates of the end of a run: branches that may be at work and
// have not reported. They report to a run that has ended.
func (e *Reservations) keepOpen(inbox []SignalReceived) {
	told := map[session.ID]bool{}
	for _, v := range inbox {
		if v.Kind == Report && v.Branch != nil {
			told[v.Branch.Link.ID] = true
		}
	}
	for i := range e.Open {
		a := &e.Open[i]
		if a.Warming { // the others never begin
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

// holds returns the place of the reservation for a branch, -1 without one.
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

// releaseBranches notes that all branches of the fan-out at a path begin.
func (e *Reservations) releaseBranches(p run.Path) {
	if i := e.at(GatherPath(p)); i >= 0 {
		e.Open[i].Warming = false
	}
}

// clone returns a copy that does not change with e.
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

// Reservations returns what is set aside for the run's branches.
func (r *Record) Reservations() Reservations { return r.reserved.clone() }

// owed is what the end of the run has to say of its branches' usage and steps,
// beside what its steps recorded; the part of the usage that is estimated apart.
func (r *Record) owed() (used, bound session.Usage, steps int64) { return r.reserved.owed(r.inbox) }
