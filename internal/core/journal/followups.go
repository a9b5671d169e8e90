package journal

import (
	"strings"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Work is a follow-up of a commit elsewhere: a run to offer or a signal to deliver.
type Work struct {
	Task   *Task // Resume is set: the run is in the session's log
	Signal *Signal
	Submit *Task // of a run that another one starts; Session is empty, or has what its author named
}

// Answer is the reply of a session's holder to work, and of a node to an offered task.
type Answer string

// The answers.
const (
	AnswerCommitted Answer = "committed" // the log holds the requested work
	AnswerQueued    Answer = "queued"    // the log holds the run, which waits for the one before it
	AnswerNotMine   Answer = "not_mine"  // the session is not held there, or the run is not offered
	// Answers to a suspect, see [SuspectError]. Crowded: too many others execute there,
	// so that another node or a later time suits the suspect better. Clearing: the node
	// accepts no other task until it is empty enough for a run that must be alone, or
	// until it gives that up.
	AnswerCrowded  Answer = "crowded"
	AnswerClearing Answer = "clearing"
)

// Followups returns the follow-ups of a commit with these facts. It is a pure function
// of its arguments; the relay on a node and tests call it. Executing the same work
// twice is harmless, because the log decides claims and signals. It fails if a fact of
// a run cannot be read. A fact of a kind unknown to this release has no follow-ups.
func Followups(e commitlog.Entry, facts []Fact) ([]Work, error) {
	k := e.Commit.Key
	var work []Work
	taken := map[run.ID]bool{} // claimed or ended by the same commit
	for i := range facts {
		f := &facts[i]
		if follows := strings.HasPrefix(f.Kind, "run.") || KeyLogEvent(f.Kind); f.Err != nil && follows && payloads[f.Kind] != nil {
			return nil, f.Err
		}
		switch f.What.(type) {
		case Claimed, Ended:
			taken[f.Run] = true
		}
	}
	offer := func(o *Offer) {
		if o != nil {
			work = append(work, Work{Task: &Task{ID: o.Run, Workflow: o.Workflow, Revision: o.Revision, Session: k, Resume: true}})
		}
	}
	begin := func(tasks []Task) {
		for _, t := range tasks {
			work = append(work, Work{Task: &t})
		}
	}
	closed := func(d run.BranchOutcome) {
		work = append(work, Work{Signal: &Signal{To: session.Key{Tenant: k.Tenant, ID: d.Session}, Run: run.ID(d.Session), Close: &d}})
	}
	for i := range facts {
		f := &facts[i]
		named := &Offer{Revision: f.Revision, Run: f.Run, Workflow: f.Workflow}
		switch v := f.What.(type) {
		case Submitted:
			if v.Limit == nil && len(v.Task.After) == 0 && v.Behind == "" && !taken[f.Run] && (v.Task.NotBefore == 0 || v.Task.NotBefore <= f.Time.UnixMilli()) {
				offer(named)
			}
		case Released:
			offer(v.Next)
			if f.State == run.Queued {
				offer(named)
			}
		case Resolved:
			if v.Decision != run.Fail {
				offer(named)
			}
		case SignalReceived:
			if f.State == run.Queued && !taken[f.Run] {
				offer(named)
			}
		case Quarantined:
			offer(v.Next)
		case FanOut:
			tasks := v.Tasks(k.Tenant)
			if v.WarmFirst {
				tasks = tasks[:min(1, len(tasks))]
			}
			begin(tasks)
		case Start:
			work = append(work, Work{Submit: new(v.task(k.Tenant))})
		case BranchesReleased:
			begin(FanOut(v).Tasks(k.Tenant)[min(1, len(v.Branches)):])
		case CacheWarmed:
			work = append(work, Work{Signal: v.signal(k.Tenant)})
		case BranchOutcomes:
			for _, b := range v.Branches {
				closed(b)
			}
		case Ended:
			offer(v.Next)
			work = append(work, v.reports(k, e.At)...)
			why := "the run that opened this branch " + v.State.Past()
			for _, b := range f.Outcomes() {
				b.Reason = why
				closed(b)
			}
			for _, id := range v.Children {
				work = append(work, Work{Signal: &Signal{
					To: session.Key{Tenant: k.Tenant, ID: id}, Run: v.Run,
					Cancel: &CancelRequested{By: string(v.Run), Reason: why, Run: v.Run, Settle: v.Settle},
				}})
			}
			if spent := v.spending(); v.Settle != "" && v.Settle != k.ID && spent != (Spending{}) {
				work = append(work, Work{Signal: settlement(session.Key{Tenant: k.Tenant, ID: v.Settle}, v.Run, Part{From: k.ID, N: 1, Spent: spent})})
			}
		case Settled:
			if up := v.Parent; up != nil { // which counts the losses of branches as usage
				told, total := v.Told, v.Total
				told.Lost, total.Lost = session.Usage{}, session.Usage{}
				work = append(work, Work{Signal: settlement(session.Key{Tenant: k.Tenant, ID: up.Session}, up.Run, Part{Counted: told, From: k.ID, N: v.N, Spent: total})})
			}
		}
	}
	return eventWork(afterWork(limitWork(work, k, facts, taken), k, facts, taken), k, e.At.Seq, facts), nil
}
