package run

import (
	"fmt"

	"github.com/rathcluster/rath/session"
)

// Starter names the run that started another one with flow.Start, and the step that did.
type Starter struct {
	// Above are the runs that started the starter, the outermost first.
	Above   []ID       `json:"above,omitempty"`
	Run     ID         `json:"run"`
	Session session.ID `json:"session"` // the home of Run
	Step    Path       `json:"step"`
}

// MaxStarted is the maximum depth of a started run: the number of runs that started each
// other above it.
const MaxStarted = 16

// Depth returns the number of runs above the started run; 0 for a run that a client
// submitted.
func (s *Starter) Depth() int {
	if s == nil {
		return 0
	}
	return len(s.Above) + 1
}

// Valid checks the form and the depth of a starter. Its error wraps ErrMalformed,
// ErrTooDeep, or that of session.ValidID.
func (s *Starter) Valid() error {
	for _, id := range append(s.Above[:len(s.Above):len(s.Above)], s.Run) {
		if err := session.ValidID("run", string(id)); err != nil {
			return err
		}
	}
	if err := session.ValidID("session", string(s.Session)); err != nil {
		return err
	}
	if s.Step == "" {
		return fmt.Errorf("run: the step of run %s that started another one is missing: %w", s.Run, ErrMalformed)
	}
	if s.Depth() > MaxStarted {
		return fmt.Errorf("run: %w: run %s is number %d of a chain of runs that start each other, at most %d may", ErrTooDeep, s.Run, s.Depth(), MaxStarted)
	}
	return nil
}
