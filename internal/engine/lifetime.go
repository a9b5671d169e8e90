package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// lifetime determines whether an execution may continue. The execution's mu guards it.
type lifetime struct {
	ctx    context.Context // ends when the execution must stop; its cause is a control error
	poison error           // why no further step may begin
	parked bool            // no unrecorded step may begin
	expire func()          // ends ctx at the run's deadline
	alarm  *time.Timer     // for it; nil if there is none
	// force is closed when a forced cancel comes; nil before the execution. givenUp means
	// that the code of the workflow did not return after the end of ctx.
	force   chan struct{}
	givenUp bool
}

// setDeadline sets the alarm to the run's deadline.
func (l *lifetime) setDeadline(c *Clock, deadline time.Time) {
	if l.alarm != nil {
		l.alarm.Stop()
	}
	if !deadline.IsZero() {
		l.alarm = c.at(deadline, l.expire)
	}
}

// stopped returns the reason why the execution must stop, or nil.
func (l *lifetime) stopped() error {
	if l.ctx == nil || l.ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(l.ctx)
	if run.IsControl(cause) || errors.Is(cause, run.ErrDeadline) {
		return cause
	}
	return fmt.Errorf("%w: %w", run.ErrShutdown, cause)
}

// stop prevents further steps after an error that ends the execution, and returns err.
func (l *lifetime) stop(err error) error {
	if l.poison == nil && err != nil && (run.IsControl(err) || errors.Is(err, run.ErrDeadline) ||
		errors.Is(err, run.ErrMismatch) || errors.Is(err, session.ErrStale)) {
		l.poison = err
	}
	return err
}

// mayGoOn returns the reason why no further step may begin, or nil.
func (l *lifetime) mayGoOn() error {
	if l.poison == nil {
		l.poison = l.stopped()
	}
	return l.poison
}
