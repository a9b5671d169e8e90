package client

import (
	"context"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// Quarantine puts the session of a run into quarantine: the step under way ends,
// no further one begins there, and no other session merges or recalls it, until
// [Client.Release]. The run may have ended. reason and by, the name of the caller,
// are kept as evidence. run.ErrState says that it is in quarantine already.
func (c *Client) Quarantine(ctx context.Context, id run.ID, by, reason string) error {
	return c.control(ctx, id, messages.VerbQuarantine, messages.Control{By: by, Reason: reason})
}

// Release ends the quarantine of a session.
func (c *Client) Release(ctx context.Context, id run.ID, by, reason string) error {
	return c.control(ctx, id, messages.VerbRelease, messages.Control{By: by, Reason: reason})
}

// Rebudget gives an open run a budget in place of the one that it has. It counts
// in all, from the run's beginning; what is zero in it is unlimited. A run that
// has consumed more ends with its next step.
func (c *Client) Rebudget(ctx context.Context, id run.ID, b messages.Budget, by, reason string) error {
	return c.control(ctx, id, messages.VerbRebudget, messages.Control{Budget: &b, By: by, Reason: reason})
}
