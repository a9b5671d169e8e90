package run

import (
	"fmt"

	"github.com/rathcluster/rath/session"
)

// Question is what a run waits for from outside: a person, or a program.
type Question struct {
	Session session.Key // the home of the run
	Run     ID
	Step    Path
	// Kind is WaitApproval, WaitResponse or WaitMessage.
	Kind string
	// Name is that of the step, or of the tool whose call a person has to approve.
	Name string
	// Title and Detail are what people read. Detail holds the arguments of a call that
	// has to be approved.
	Title, Detail string
	// Schema is the JSON Schema of the value of a response, or of the values of an
	// approval; "" takes any.
	Schema string
	// Refused is why the answer before was not taken, "" for the first one.
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
