package client

import (
	"context"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Quarantine sets the session of a run apart: the step under way ends, and no
// further one begins there, nobody merges the session or recalls what it wrote,
// until [Client.Release]. The run may have ended. reason is kept as evidence,
// like by, who asks. run.ErrState says that the session is set apart already.
func (c *Client) Quarantine(ctx context.Context, id run.ID, by, reason string) error {
	return c.control(ctx, id, messages.VerbQuarantine, messages.Control{By: by, Reason: reason})
}

// Release lets a session that was set apart go on.
func (c *Client) Release(ctx context.Context, id run.ID, by, reason string) error {
	return c.control(ctx, id, messages.VerbRelease, messages.Control{By: by, Reason: reason})
}

// Rebudget gives an open run a budget in place of the one that it has. It counts
// in all, from the run's beginning; what is zero in it is unlimited. A run that
// has consumed more ends with its next step.
func (c *Client) Rebudget(ctx context.Context, id run.ID, b messages.Budget, by, reason string) error {
	return c.control(ctx, id, messages.VerbRebudget, messages.Control{Budget: &b, By: by, Reason: reason})
}
