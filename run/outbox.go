package run

import (
	"github.com/rathcluster/rath/session"
)

// Work is what a commit asks for elsewhere: a run to offer or a signal to
// deliver.
type Work struct {
	Task   *Task // Resume is set: the run is in the session's log
	Signal *Signal
}

// Derive returns what follows from a commit: a pure function of it, called by
// the relay on a node and by tests. Doing the same work twice is harmless,
// because claims and signals are decided in the log.
func Derive(e session.Entry) ([]Work, error) {
	k := e.Commit.Key
	var work []Work
	claimed := map[ID]bool{}
	for _, ev := range e.Commit.Events {
		if ev.Kind == KindClaimed {
			c, err := Read[Claimed](ev)
			if err != nil {
				return nil, err
			}
			claimed[c.Run] = true
		}
	}
	offer := func(o Offer) {
		work = append(work, Work{Task: &Task{ID: o.Run, Workflow: o.Workflow, Revision: o.Revision, Session: k, Resume: true}})
	}
	begin := func(tasks []Task) {
		for _, t := range tasks {
			work = append(work, Work{Task: &t})
		}
	}
	closed := func(d BranchOutcome) {
		work = append(work, Work{Signal: &Signal{To: session.Key{Tenant: k.Tenant, ID: d.Session}, Run: ID(d.Session), Close: &d}})
	}
	for _, ev := range e.Commit.Events {
		switch ev.Kind {
		case KindSubmitted:
			s, err := Read[Submitted](ev)
			if err != nil {
				return nil, err
			}
			if s.Behind == "" && !claimed[s.Task.Run] && (s.Task.NotBefore == 0 || s.Task.NotBefore <= ev.Time.UnixMilli()) {
				offer(Offer{Run: s.Task.Run, Workflow: s.Task.Workflow, Revision: s.Task.Revision})
			}
		case KindReleased:
			r, err := Read[Released](ev)
			if err != nil {
				return nil, err
			}
			if r.Next != nil {
				offer(*r.Next)
			}
			if r.Workflow != "" {
				offer(Offer{Run: r.Run, Workflow: r.Workflow, Revision: r.Revision})
			}
		case KindResolved:
			r, err := Read[Resolved](ev)
			if err != nil {
				return nil, err
			}
			if r.Decision != Fail {
				offer(Offer{Run: r.Run, Workflow: r.Workflow, Revision: r.Revision})
			}
		case KindReceived:
			r, err := Read[SignalReceived](ev)
			if err != nil {
				return nil, err
			}
			if r.Wake > 0 && !claimed[r.Run] {
				offer(Offer{Run: r.Run, Workflow: r.Workflow, Revision: r.Revision})
			}
		case KindQuarantined:
			q, err := Read[Quarantined](ev)
			if err != nil {
				return nil, err
			}
			if q.Next != nil {
				offer(*q.Next)
			}
		case KindFanOut:
			f, err := Read[FanOut](ev)
			if err != nil {
				return nil, err
			}
			tasks := f.Tasks(k.Tenant)
			if f.Warm {
				tasks = tasks[:min(1, len(tasks))]
			}
			begin(tasks)
		case KindSpread:
			f, err := Read[FanOut](ev)
			if err != nil {
				return nil, err
			}
			begin(f.Tasks(k.Tenant)[min(1, len(f.Branches)):])
		case KindWarmed:
			v, err := Read[Warmed](ev)
			if err != nil {
				return nil, err
			}
			work = append(work, Work{Signal: v.signal(k.Tenant)})
		case KindDisposed:
			d, err := Read[BranchOutcomes](ev)
			if err != nil {
				return nil, err
			}
			for _, b := range d.Branches {
				closed(b)
			}
		case KindEnded:
			v, err := Read[Ended](ev)
			if err != nil {
				return nil, err
			}
			if v.Next != nil {
				offer(*v.Next)
			}
			if v.Parent != nil {
				work = append(work, Work{Signal: report(k, v, e.At)})
			}
			for _, id := range v.Branches {
				closed(BranchOutcome{Session: id, State: session.ClosedCancelled, Reason: "the run that opened this branch " + v.State.Past()})
			}
			for _, id := range v.Children {
				work = append(work, Work{Signal: &Signal{
					To: session.Key{Tenant: k.Tenant, ID: id}, Run: v.Run,
					Cancel: &CancelRequested{By: string(v.Run), Reason: "the run that opened this branch " + v.State.Past(), Run: v.Run},
				}})
			}
		}
	}
	return work, nil
}
