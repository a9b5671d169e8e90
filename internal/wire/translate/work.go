package translate

import (
	"encoding/json"
	"fmt"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Work is sent only between nodes: a run to take over or a signal for a session. The
// run itself is in the session's log.
type Work struct {
	Tenant   session.Tenant           `json:"tenant"`
	Session  session.ID               `json:"session"`
	Run      run.ID                   `json:"run"`
	Workflow string                   `json:"workflow,omitempty"` // of an offer
	Revision string                   `json:"revision,omitempty"`
	Cancel   *journal.CancelRequested `json:"cancel,omitempty"`
	Resolve  *journal.Resolved        `json:"resolve,omitempty"`
	Received *journal.SignalReceived  `json:"received,omitempty"`
	Close    *run.BranchOutcome       `json:"close,omitempty"`
	Tick     bool                     `json:"tick,omitempty"`
	// Quarantine and Rebudget are the operator's decisions about a session and a run.
	Quarantine *journal.Quarantined   `json:"quarantine,omitempty"`
	Rebudget   *journal.Rebudgeted    `json:"rebudget,omitempty"`
	Late       *journal.StepCompleted `json:"late,omitempty"`
	Settle     *journal.Part          `json:"settle,omitempty"`
	// Limit is a fact about a limit by key or, with Task, Limited is the limit of the task.
	Limit   *journal.LimitSignal `json:"limit,omitempty"`
	Limited *journal.Limit       `json:"limited,omitempty"`
	Event   *journal.EventSignal `json:"event,omitempty"`
	Awaited *journal.Awaited     `json:"awaited,omitempty"`
	// Task is set for a task that no log holds yet. Its input is separate, as text: the
	// task's digest covers every byte of it.
	Task  *messages.Task `json:"task,omitempty"`
	Input string         `json:"input,omitempty"`
	// After, By, Via and Says are the task's.
	After []journal.Predecessor `json:"after,omitempty"`
	By    string                `json:"by,omitempty"`
	Via   string                `json:"via,omitempty"`
	Says  string                `json:"says,omitempty"`
	// Branch is set for the task of a fan-out's branch.
	Branch *journal.Branch `json:"branch,omitempty"`
	// Seen is the run's state as the dispatching relay knew it.
	Seen *journal.Seen `json:"seen,omitempty"`
}

// WorkOf returns the wire form of work.
func WorkOf(w journal.Work) Work {
	switch {
	case w.Signal != nil:
		s := w.Signal
		return Work{
			Tenant: s.To.Tenant, Session: s.To.ID, Run: s.Run, Cancel: s.Cancel, Resolve: s.Resolve,
			Received: s.Received, Close: s.Close, Tick: s.Tick, Late: s.Late, Settle: s.Settle, Quarantine: s.Quarantine, Rebudget: s.Rebudget, Limit: s.Limit, Event: s.Event, Awaited: s.Awaited,
		}
	case w.Task == nil:
		return Work{}
	}
	t := w.Task
	out := Work{Tenant: t.Session.Tenant, Session: t.Session.ID, Run: t.ID, Workflow: t.Workflow, Revision: t.Revision, Seen: t.Seen}
	if !t.Resume {
		task := TaskOf(*t)
		task.Input = nil // it is sent as text
		task.StartedBy = t.StartedBy
		out.Task, out.Input, out.Branch, out.By, out.Via, out.Says, out.Limited, out.After = &task, string(t.Input), t.Branch, t.By, t.Via, t.Says, t.Limit, t.After
	}
	return out
}

// Encode returns the JSON that DecodeWork reads.
func (w *Work) Encode() ([]byte, error) { return messages.Encode(w) }

// DecodeWork reads work and checks its ids. Work is larger than its task, because the
// input is text within text. Nodes of several releases exchange work while a fleet is
// upgraded, so it skips fields of later releases. A signal unknown to this release is
// run.ErrNotSupported: another node supports it.
func DecodeWork(data []byte) (journal.Work, error) {
	w, err := messages.Decode[Work]("work", data)
	if err != nil {
		return journal.Work{}, err
	}
	return w.Decoded()
}

// Decoded returns the decoded work, see DecodeWork.
func (w *Work) Decoded() (journal.Work, error) {
	k := session.Key{Tenant: w.Tenant, ID: w.Session}
	if err := k.Valid(); err != nil {
		return journal.Work{}, fmt.Errorf("work: %w: %w", run.ErrMalformed, err)
	}
	signal := w.Cancel != nil || w.Resolve != nil || w.Received != nil || w.Close != nil || w.Tick || w.Late != nil || w.Quarantine != nil || w.Rebudget != nil || w.Settle != nil || w.Limit != nil || w.Event != nil || w.Awaited != nil
	if err := session.ValidID("run", string(w.Run)); err != nil && (!signal || w.Run != "") {
		return journal.Work{}, fmt.Errorf("work: %w: %w", run.ErrMalformed, err)
	}
	if signal {
		return journal.Work{Signal: &journal.Signal{
			To: k, Run: w.Run, Cancel: w.Cancel, Resolve: w.Resolve, Received: w.Received, Close: w.Close, Tick: w.Tick, Late: w.Late,
			Quarantine: w.Quarantine, Rebudget: w.Rebudget, Settle: w.Settle, Limit: w.Limit, Event: w.Event, Awaited: w.Awaited,
		}}, nil
	}
	if w.Workflow == "" && w.Task == nil {
		return journal.Work{}, fmt.Errorf("work: nothing that this release knows, for session %s: %w; a node of the release that sent it takes it", w.Session, run.ErrNotSupported)
	}
	if err := session.ValidID("workflow", w.Workflow); err != nil {
		return journal.Work{}, fmt.Errorf("work: %w: %w", run.ErrMalformed, err)
	}
	t := journal.Task{ID: w.Run, Workflow: w.Workflow, Revision: w.Revision, Session: k, Resume: true, Seen: w.Seen}
	if w.Task != nil {
		var err error
		if t, err = Task(w.Task, w.Tenant, w.Workflow); err != nil {
			return journal.Work{}, err
		}
		t.Branch, t.By, t.Via, t.Says, t.Limit, t.After = w.Branch, w.By, w.Via, w.Says, w.Limited, w.After
		if t.Session = k; w.Input != "" {
			t.Input = json.RawMessage(w.Input)
		}
	}
	return journal.Work{Task: &t}, nil
}
