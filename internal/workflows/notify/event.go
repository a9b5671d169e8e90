package notify

import (
	"net/url"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Workflow is the name of the workflow that sends notifications.
const Workflow = wire.WorkflowNotify

// The kinds of events.
const (
	Question   = "question"
	Failed     = "failed"
	Stuck      = "stuck"
	Budget     = "budget"
	DeadLetter = "deadletter"
)

// kinds have the type of an event in the form standard, and its text.
var kinds = map[string]struct{ standard, text string }{
	Question:   {"question.asked", "Question: run %s waits for an answer"},
	reminder:   {"question.open", "Still open: run %s waits for an answer"},
	Failed:     {"run.failed", "Run %s failed"},
	Stuck:      {"run.stuck", "Run %s is stuck"},
	Budget:     {"run.budget_reached", "Run %s reached its budget"},
	DeadLetter: {"task.rejected", "Task %s was rejected"},
}

// reminder is the kind of a question that is sent again.
const reminder = "again"

// Event is an occurrence that rules may name.
type Event struct {
	Kind     string   `json:"kind"`
	Run      run.ID   `json:"run,omitempty"` // "" for a rejected task without a readable id
	Workflow string   `json:"workflow,omitempty"`
	Step     run.Path `json:"step,omitempty"` // of the question
	// Sequence is the position of the commit in its event stream, or of a dead letter in
	// its stream. It grows with the events of a run; 0 for a run that is stuck.
	Sequence uint64 `json:"sequence,omitempty"`
	TimeMS   int64  `json:"time_ms"` // Unix milliseconds
}

// Kinds are the kinds of events in logs that EventOf returns an event for.
var Kinds = []string{journal.KindRunWaiting, journal.KindReview, journal.KindEnded}

// EventOf returns the event of a fact; ok is false for other facts. The fact of a question
// or a review has no workflow.
func EventOf(f *journal.Fact) (e Event, ok bool) {
	e = Event{Run: f.Run, Workflow: f.Workflow, TimeMS: f.Time.UnixMilli()}
	switch v := f.What.(type) {
	case journal.RunWaiting:
		for _, w := range v.For {
			if w.Kind == run.WaitApproval || w.Kind == run.WaitResponse {
				e.Kind, e.Step = Question, w.Path
				break
			}
		}
	case journal.Review:
		e.Kind = Stuck
	case journal.Ended:
		switch {
		case v.Workflow == "", v.Parent != nil: // of another session than the home, or of a branch
		case v.Code == run.CodeBudget:
			e.Kind = Budget
		case v.State == run.Failed, v.State == run.TimedOut:
			e.Kind = Failed
		}
	}
	return e, e.Kind != ""
}

// path is the page of the event.
func (e *Event) path(t session.Tenant) string {
	base := "/t/" + string(t)
	switch {
	case e.Kind == DeadLetter:
		return base + "/fleet"
	case e.Step != "":
		return base + "/questions/" + string(e.Run) + "/" + url.PathEscape(string(e.Step))
	}
	return base + "/runs/" + string(e.Run)
}
