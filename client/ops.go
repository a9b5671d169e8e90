package client

import (
	"context"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Quarantine puts the session of a run into quarantine: the current step ends, no
// further one starts there, and no other session merges or recalls it, until
// [Client.Release]. The run may have ended. reason and by, the name of the caller, are
// kept as evidence. run.ErrState means that the session is in quarantine already.
func (c *Client) Quarantine(ctx context.Context, id run.ID, by, reason string) error {
	return c.control(ctx, id, messages.VerbQuarantine, messages.Control{By: by, Reason: reason})
}

// Release ends the quarantine of a session.
func (c *Client) Release(ctx context.Context, id run.ID, by, reason string) error {
	return c.control(ctx, id, messages.VerbRelease, messages.Control{By: by, Reason: reason})
}

// Rebudget replaces the budget of an open run. The new budget counts from the run's
// start; its zero fields are unlimited. A run that has consumed more ends with its next
// step.
func (c *Client) Rebudget(ctx context.Context, id run.ID, b messages.Budget, by, reason string) error {
	return c.control(ctx, id, messages.VerbRebudget, messages.Control{Budget: &b, By: by, Reason: reason})
}
