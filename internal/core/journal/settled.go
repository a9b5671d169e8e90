package journal

import (
	"fmt"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Spending is the usage of a run, or of one part of it.
type Spending struct {
	Lost  session.Usage `json:"lost,omitzero"` // the part of Usage that is estimated
	Steps int64         `json:"steps,omitempty"`
	Usage session.Usage `json:"usage,omitzero"`
}

func (s Spending) add(o Spending) Spending {
	return Spending{Lost: s.Lost.Add(o.Lost), Steps: s.Steps + o.Steps, Usage: s.Usage.Add(o.Usage)}
}

func (s Spending) sub(o Spending) Spending {
	return Spending{Lost: s.Lost.Sub(o.Lost), Steps: s.Steps - o.Steps, Usage: s.Usage.Sub(o.Usage)}
}

// Part is the usage of one part of a run, as the log of a fork or of a branch reports
// it after the run has counted that part. It carries totals, so that reordered and
// repeated reports are harmless.
type Part struct {
	// Counted is the usage that the run counted before the first such report: zero for
	// a fork; for a branch, the usage reported by its end or, before that, the bound of
	// its budget.
	Counted Spending   `json:"counted,omitzero"`
	From    session.ID `json:"from"`        // the fork or the branch
	N       uint64     `json:"n,omitempty"` // counts the reports of the part; 0 is the end of a branch
	Spent   Spending   `json:"spent,omitzero"`
}

// Settled records a correction of a run's usage: a run that ended without its execution
// lacks the steps in its forks, and a branch may still execute when the run around it
// ends. For a run that has ended, Total replaces the usage in Ended.
type Settled struct {
	N      uint64    `json:"n,omitempty"`      // counts the corrections of a run that has ended, from one
	Parent *Ancestor `json:"parent,omitempty"` // of a branch that has ended: the receiver of the report
	Part   Part      `json:"part"`
	Run    run.ID    `json:"run"`
	Told   Spending  `json:"told,omitzero"`  // the usage in the end of a branch
	Total  Spending  `json:"total,omitzero"` // of a run that has ended
}

// revise records the report of a part and returns the difference to the counted usage.
// ok is false if a later report was recorded before.
func (e *Reservations) revise(p Part) (diff Spending, ok bool) {
	if p.N == 0 {
		i := e.holds(p.From)
		if i >= 0 {
			e.drop(i, p.From)
		}
		return p.Spent.sub(p.Counted), i >= 0
	}
	was := p.Counted
	if known, there := e.Parts[p.From]; there {
		if p.N <= known.N {
			return diff, false
		}
		was = known.Spent
	}
	if e.Parts == nil {
		e.Parts = map[session.ID]Part{}
	}
	e.Parts[p.From] = p
	return p.Spent.sub(was), true
}

// Revise records the report of a part of an open run.
func (e *Reservations) Revise(p Part) {
	if diff, ok := e.revise(p); ok {
		e.Late, e.LateSteps = e.Late.Add(diff.Usage), e.LateSteps+diff.Steps
	}
}

// bound is the usage counted, at the end of a run, for a branch that had not reported.
func (e *Reservations) bound(branch session.ID) (b Spending, ok bool) {
	i := e.holds(branch)
	if i < 0 {
		return b, false
	}
	a := &e.Open[i]
	most := session.Usage{Input: a.Part.Tokens, MicroUSD: a.Part.MicroUSD}
	return Spending{Lost: most, Steps: a.Part.Steps, Usage: most}, true
}

// Spent is the usage of an ended run, according to its current log.
func (r *Record) Spent() Spending {
	switch {
	case r.settled != nil:
		return r.settled.Total
	case r.Ended != nil:
		return r.Ended.spending()
	}
	return Spending{}
}

func (e *Ended) spending() Spending { return Spending{Lost: e.Lost, Steps: e.Steps, Usage: e.Usage} }

// settlePart decides about the report of a part of a run.
func (w *StateMachine) settlePart(r *Record, p Part, now time.Time) error {
	if r.Home != w.key {
		return fmt.Errorf("journal: %s is told in the log of %s, not of %s: %w", r.ID, r.Home, w.key, run.ErrState)
	}
	known := r.reserved.clone()
	diff, ok := known.revise(p)
	if !ok {
		return nil // it, or a later one, arrived before
	}
	v := Settled{Part: p, Run: r.ID}
	if r.State.Terminal() {
		v.N, v.Total = 1, r.Spent().add(diff)
		if r.settled != nil {
			v.N += r.settled.N
		}
		if v.Parent = r.Ended.Parent; v.Parent != nil {
			v.Told = r.Ended.spending()
		}
	}
	return w.stage(now, event(KindSettled, v))
}

// reportedLate handles the report of a branch that the run ended without: the branch's
// usage replaces the bound that the end counted. It returns ErrState, because the end
// of the branch no longer decides anything.
func (w *StateMachine) reportedLate(r *Record, v SignalReceived, now time.Time) error {
	if bound, ok := r.reserved.bound(v.Branch.Link.ID); ok && r.Home == w.key {
		p := Part{Counted: bound, From: v.Branch.Link.ID, Spent: Spending{Steps: v.Branch.Steps, Usage: v.Branch.Usage}}
		if err := w.settlePart(r, p, now); err != nil {
			return err
		}
	}
	return fmt.Errorf("journal: %s %s already: %w", r.ID, r.State.Past(), run.ErrState)
}

// settle folds the report of a part.
func (r *Record) settle(v Settled) {
	if !r.State.Terminal() {
		r.reserved.Revise(v.Part)
		return
	}
	if _, ok := r.reserved.revise(v.Part); ok {
		r.settled = &v
	}
}

// settlement returns the signal that carries the usage of a part to the home of its
// run.
func settlement(to session.Key, id run.ID, p Part) *Signal {
	return &Signal{To: to, Run: id, Settle: &p}
}
