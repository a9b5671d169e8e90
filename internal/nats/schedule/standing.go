package schedule

import (
	"cmp"
	"slices"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Standing is the state of a run that has not ended at the relay of its partition. Times
// are in Unix milliseconds; zero is never.
type Standing struct {
	State   run.State `json:"state,omitempty"` // "" if the run is not open here
	Attempt uint64    `json:"attempt,omitempty"`
	// Holder is the incarnation that executes the run, and Lost is set if the relay
	// considers it dead.
	Holder string `json:"holder,omitempty"`
	Lost   bool   `json:"lost,omitempty"`
	// Due is when the run may begin, a wait times out, a review expires or the run
	// must have ended, whichever comes first.
	Due int64 `json:"due,omitempty"`
	// Limit is the log of the key of the limit that the run waits for.
	Limit session.ID `json:"limit,omitempty"`
	After bool       `json:"after,omitempty"` // the run waits for other runs
	// Behind is the run that holds the session.
	Behind      run.ID `json:"behind,omitempty"`
	Quarantined bool   `json:"quarantined,omitempty"`
	// Unbegun is how many branches of the run wait for a slot.
	Unbegun int `json:"unbegun,omitempty"`
	// Unoffered are the waiting branches that no living node could execute, by the relay's
	// state.
	Unoffered []Unoffered `json:"unoffered,omitempty"`
	Queue     *QueuePlace `json:"queue,omitempty"` // of a run to be dispatched
}

// Unoffered counts branches of a workflow, in a revision if they need one.
type Unoffered struct {
	Workflow string `json:"workflow"`
	Revision string `json:"revision,omitempty"`
	Branches int    `json:"branches"`
}

// QueuePlace is where a run waits for a slot.
type QueuePlace struct {
	// Pool is the pool that offers the workflow, "" while none is known. Revision is the
	// revision that the run needs.
	Pool     string `json:"pool,omitempty"`
	Revision string `json:"revision,omitempty"`
	Batch    bool   `json:"batch,omitempty"`
	// Ahead is how many runs of the partition get a slot before it, if no further runs
	// arrive, and Waiting how many runs of the pool wait in the partition.
	Ahead   int `json:"ahead"`
	Waiting int `json:"waiting"`
	// Nodes is the number of living nodes of the pool, and Free their free slots, by the
	// relay's state.
	Nodes int `json:"nodes"`
	Free  int `json:"free"`
	// Sent is the incarnation that was sent the run and has not answered.
	Sent string `json:"sent,omitempty"`
	// Again is when the run is offered again, after a node failed to claim it.
	Again int64 `json:"again,omitempty"`
}

// OpenSessions returns the sessions of a tenant with runs that have not ended, at most
// most, and whether these are all. Its time grows with the open runs.
func (s *Scheduler) OpenSessions(t session.Tenant, most int) (open []session.ID, all bool) {
	for k, o := range s.sessions {
		if k.Tenant != t || len(o.Runs) == 0 {
			continue
		}
		if len(open) == most {
			return open, false
		}
		open = append(open, k.ID)
	}
	return open, true
}

// Standing returns the state of a run.
func (s *Scheduler) Standing(now time.Time, k session.Key, id run.ID) Standing {
	o := s.sessions[k]
	if o == nil {
		return Standing{}
	}
	r := o.run(id)
	if r == nil {
		return Standing{}
	}
	st := Standing{State: r.State, Attempt: r.Attempt, Quarantined: o.Quarantined}
	for at := range r.times {
		if st.Due == 0 || at < st.Due {
			st.Due = at
		}
	}
	if r.State == run.Running {
		st.Holder, st.Lost = r.Incarnation, !o.executes(r, s.lives)
	}
	if st.After = r.Held && r.Limit == After; r.Held && !st.After {
		st.Limit = r.Limit
	}
	switch it := o.ready; {
	case it != nil && it.task.ID == id:
		st.Queue = s.Slots.placeOf(now, it)
	case r.State == run.Queued && o.Active != "" && o.Active != id:
		st.Behind = o.Active
	case r.State == run.Queued && it != nil:
		st.Behind = it.task.ID
	}
	waiting := map[*group]int{} // branches
	for _, d := range o.FollowUps {
		for _, f := range d.items {
			if f.begin != nil && !f.over && opener(f.begin.task) == id {
				st.Unbegun++
				if it := f.begin; it.flight == nil && it.group != nil {
					waiting[it.group]++
				}
			}
		}
	}
	for g, branches := range waiting {
		if nodes, _ := s.Slots.nodes.offering(now, g, g.pool); !g.placed || nodes == 0 {
			st.Unoffered = append(st.Unoffered, Unoffered{g.workflow, g.revision, branches})
		}
	}
	slices.SortFunc(st.Unoffered, func(x, y Unoffered) int {
		return cmp.Or(cmp.Compare(x.Workflow, y.Workflow), cmp.Compare(x.Revision, y.Revision))
	})
	return st
}
