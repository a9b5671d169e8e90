package journal

import (
	"encoding/json"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Start records that a run starts an independent one. The relay submits its task, like a
// client, until a node has taken it.
type Start struct {
	By   string   `json:"by,omitempty"` // who submitted the starter; set by the writer
	Path run.Path `json:"path"`
	Run  run.ID   `json:"run"` // the starter
	// Session is the session of the task, as its author names it; "" is a new one.
	Session session.ID `json:"session,omitempty"`
	Task    wireTask   `json:"task"`
}

// NewStart returns the record of the start of t, whose StartedBy is set, by a step of the
// run id.
func NewStart(id run.ID, at run.Path, t Task) Start {
	return Start{Path: at, Run: id, Session: t.Session.ID, Task: t.wire()}
}

// task returns the task to submit for a starter of a tenant.
func (v Start) task(of session.Tenant) Task {
	t := v.Task.task(session.Key{Tenant: of, ID: v.Session})
	if t.By = v.By; v.By != "" {
		t.Via = string(v.Run)
	}
	return t
}

// Started is the value of the step that starts a run.
type Started struct {
	Run run.ID `json:"run"`
}

// RunEnd is the outcome of a started run: of its end, or of the rejection of its task.
type RunEnd struct {
	Code    run.Code        `json:"code,omitempty"`
	Error   string          `json:"error,omitempty"`
	Output  string          `json:"output,omitempty"`
	Run     run.ID          `json:"run"`
	Session session.ID      `json:"session,omitempty"` // its home; "" if no session has taken it
	State   run.State       `json:"state"`
	Steps   int64           `json:"steps,omitempty"`
	Usage   session.Usage   `json:"usage,omitzero"`
	Version session.Version `json:"version,omitempty"` // of the session after it
}

// outcome returns the outcome of a started run in the session k.
func (v Ended) outcome(home session.ID) RunEnd {
	return RunEnd{Code: v.Code, Error: v.Error, Output: v.Output, Run: v.Run, Session: home, State: v.State, Steps: v.Steps, Usage: v.Usage, Version: v.Version}
}

// reports returns the work that brings the end of a run to the run that opened it as a
// branch, or started it, and to the runs that wait for it.
func (v Ended) reports(k session.Key, at commitlog.Position) (work []Work) {
	if v.Parent != nil {
		work = append(work, Work{Signal: report(k, v, at)})
	}
	if v.Starter != nil {
		work = append(work, Work{Signal: v.Starter.outcome(k.Tenant, v.outcome(k.ID))})
	}
	for _, a := range v.AwaitedBy {
		work = append(work, Work{Signal: Awaited{By: a.Run, Session: a.Session}.Answer(k.Tenant, v.outcome(k.ID))})
	}
	return work
}

// outcome returns the signal that brings the outcome of a started run to its starter.
func (a *Ancestor) outcome(t session.Tenant, e RunEnd) *Signal {
	return &Signal{
		To: session.Key{Tenant: t, ID: a.Session}, Run: a.Run,
		Received: &SignalReceived{Ended: &e, Kind: Outcome, Path: a.Path, Run: a.Run},
	}
}

// Answer returns the signal that brings the end of a predecessor to the run that waits for
// it.
func (v Awaited) Answer(t session.Tenant, e RunEnd) *Signal {
	a := Ancestor{Run: v.By, Session: v.Session}
	return a.outcome(t, RunEnd{Code: e.Code, Run: e.Run, Session: e.Session, State: e.State})
}

// Rejected returns the signal that brings the rejection of a started run's task to its
// starter; nil for the task of a client.
func (t *Task) Rejected(e RunEnd) *Signal {
	by := t.StartedBy
	if by == nil {
		return nil
	}
	a := Ancestor{Path: by.Step, Run: by.Run, Session: by.Session}
	return a.outcome(t.Session.Tenant, e)
}

// ends reports whether a signal is the outcome of the started run id.
func (v SignalReceived) ends(id run.ID) bool {
	return v.Kind == Outcome && v.Ended != nil && v.Ended.Run == id
}

// knowsEnd reports whether the outcome of a started run is in the inbox, or a step has
// taken it.
func knowsEnd(r *Record, id run.ID) bool {
	for _, v := range r.inbox {
		if v.ends(id) {
			return true
		}
	}
	return (&Journal{steps: r.steps}).Outcome(id) != nil
}

// Outcome returns the record of a step that has the outcome of a started run, nil if none
// has.
func (j *Journal) Outcome(id run.ID) *StepCompleted {
	for _, s := range j.steps {
		if s.Kind == StepResult && s.Code == "" && run.ID(s.Name) == id {
			return &s.StepCompleted
		}
	}
	return nil
}

// Started reads the started run of a step's value.
func (d StepCompleted) Started() (v Started, err error) {
	err = json.Unmarshal([]byte(d.Value), &v)
	return v, err
}
