package run

import (
	"fmt"

	"github.com/rathcluster/rath/session"
)

// Question is a question of a run to an operator or to a program.
type Question struct {
	Session session.Key // the home of the run
	Run     ID
	Step    Path
	// Kind is WaitApproval, WaitResponse or WaitMessage. In one process it may be WaitEvent,
	// with the key of the event.
	Kind, Key string
	// Name is the name of the step, or of the tool whose call needs approval.
	Name string
	// Title and Detail are the text for the operator. Detail holds the arguments of a
	// call that needs approval.
	Title, Detail string
	// Schema is the JSON Schema of the value of a response, or of the values of an
	// approval; "" accepts any.
	Schema string
	// Refused is the reason why the previous answer was rejected, "" for the first one.
	Refused string
}

// String names the question, its run and its step.
func (q Question) String() string {
	article := "a "
	if q.Kind == WaitApproval {
		article = "an "
	}
	return fmt.Sprintf("run %s waits at step %s for %s%s: %q, %q", q.Run, q.Step, article, q.Kind, q.Name, q.Title)
}
