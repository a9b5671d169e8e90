package run

import (
	"fmt"

	"github.com/rathcluster/rath/session"
)

// Resumption names the run that a task continues, at one of its steps. The records of the
// steps before it stand; the session of the new run is a fork of the ended run's session
// before the step. A cleanup run has one without a Hash, because the commit that ended the
// run submitted it.
type Resumption struct {
	// Commit and Hash identify the commit that ended the run.
	Commit  uint64       `json:"commit"`
	Hash    session.Hash `json:"hash,omitzero"`
	Run     ID           `json:"run"`
	Session session.ID   `json:"session"` // the run's home
	Step    Path         `json:"step"`    // of the workflow itself, such as "4"
}

// Cleanup reports whether it is the resumption of a cleanup run, which executes the
// compensations of the ended run in the same session.
func (r *Resumption) Cleanup() bool { return r != nil && r.Hash == session.Hash{} }

// Valid checks the form of a resumption. Its error wraps ErrMalformed, or that of
// session.ValidID.
func (r *Resumption) Valid() error {
	if err := session.ValidID("run", string(r.Run)); err != nil {
		return err
	}
	if err := session.ValidID("session", string(r.Session)); err != nil {
		return err
	}
	if !r.Step.Resumable() {
		return fmt.Errorf("run: step %.40q is no step of a workflow itself, such as 4, and no iteration of a loop, such as 4.17: %w", string(r.Step), ErrMalformed)
	}
	if r.Commit == 0 || r.Hash == (session.Hash{}) {
		return fmt.Errorf("run: the commit that ended run %s, or its hash, is missing: %w", r.Run, ErrMalformed)
	}
	return nil
}
