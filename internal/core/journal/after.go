package journal

import (
	"fmt"
	"slices"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// A task names predecessors: runs that must have ended before its run begins. The commit
// that submits the run sends a request to the home of each one, which answers with its end:
// at once, or with the commit that ends it. The last answer lets the run begin, or request
// the grant of its limit. A predecessor that did not succeed ends the run.

// mustWait reports whether the run must not begin yet: a predecessor has not ended, or a limit
// has granted nothing.
func mustWait(r *Record) bool { return len(r.After) > 0 || awaits(r) != nil }

// openPredecessor returns the place of a run among the predecessors that are open, -1 for none.
func openPredecessor(r *Record, id run.ID) int {
	return slices.IndexFunc(r.After, func(p Predecessor) bool { return p.Run == id })
}

// preceded folds the end of a predecessor, and reports whether v is one: no step takes it.
func preceded(r *Record, v SignalReceived) bool {
	if v.Kind != Outcome || v.Path != "" || v.Ended == nil {
		return false
	}
	if at := openPredecessor(r, v.Ended.Run); at >= 0 && r.After[at].begins(v.Ended) {
		r.After = slices.Delete(slices.Clone(r.After), at, at+1)
	}
	return true
}

// begins reports whether an end of the predecessor lets the run begin.
func (p Predecessor) begins(e *RunEnd) bool { return p.Any || e.State == run.Succeeded }

// afterWork adds the follow-ups of a commit about predecessors: the requests of submitted
// runs, and the answers about runs that had ended. taken are the runs that it claims or ends.
func afterWork(work []Work, k session.Key, facts []Fact, taken map[run.ID]bool) []Work {
	for i := range facts {
		switch v := facts[i].What.(type) {
		case Submitted:
			for _, p := range v.Task.After {
				if !taken[v.Task.Run] {
					work = append(work, Work{Signal: &Signal{
						To: session.Key{Tenant: k.Tenant, ID: p.Session}, Run: p.Run, Awaited: &Awaited{By: v.Task.Run, Run: p.Run, Session: k.ID},
					}})
				}
			}
		case Awaited:
			if v.Ended != nil {
				work = append(work, Work{Signal: v.Answer(k.Tenant, *v.Ended)})
			}
		}
	}
	return work
}

// record notes in r, which is open, that another run waits for its end.
func (v Awaited) record(r *Record) {
	if v.Ended == nil {
		r.awaitedBy = append(r.awaitedBy, Ancestor{Run: v.By, Session: v.Session})
	}
}

// awaitEnd records that a run waits for the end of r, which may have come before.
func awaitEnd(w *StateMachine, r *Record, v Awaited, now time.Time) error {
	v.Run, v.Ended = r.ID, nil
	switch by := (Ancestor{Run: v.By, Session: v.Session}); {
	case r.Home != w.key:
		return fmt.Errorf("journal: %s is awaited in the log of %s, not of %s: %w", r.ID, w.key, r.Home, run.ErrState)
	case r.State.Terminal():
		v.Ended = &RunEnd{Code: r.Ended.Code, Run: r.ID, Session: w.key.ID, State: r.State}
	case slices.Contains(r.awaitedBy, by):
		return nil // it arrived before
	case len(r.awaitedBy) >= run.MaxAwaited:
		return fmt.Errorf("journal: %d runs wait for the end of %s: %w", len(r.awaitedBy), r.ID, session.ErrUnavailable)
	}
	return w.stage(now, event(KindAwaited, v))
}

// precedes records the end of a predecessor. The end of the last one lets the run begin, or
// request its grant.
func precedes(w *StateMachine, r *Record, v SignalReceived, now time.Time) error {
	at := openPredecessor(r, v.Ended.Run)
	if at < 0 {
		return nil // it came before
	}
	p, last := r.After[at], len(r.After) == 1
	if err := w.stage(now, event(KindSignalReceived, w.place(r, v))); err != nil {
		return err
	}
	switch {
	case !p.begins(v.Ended):
		why := fmt.Sprintf("run %s, which must succeed before this run begins, %s", p.Run, v.Ended.State.Past())
		if v.Ended.Code != "" {
			why += fmt.Sprintf(" (%s)", v.Ended.Code)
		}
		why += fmt.Sprintf("; submit the task again under another id, after the run that replaces %s, or with %s in after_any", p.Run, p.Run)
		return w.end(r, run.Failed, run.CodeAfter, why, now)
	case !last:
		return nil
	}
	g := Granted{Revision: r.Task.Revision, Run: r.ID, Workflow: r.Task.Workflow}
	if r.Limit != nil {
		g.Next = r.Limit.request(r.Task.wire(), w.key.ID)
	}
	return w.stage(now, event(KindGranted, g))
}
