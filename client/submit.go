package client

import (
	"context"

	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/messages"
)

// ErrSameTask means that a task was submitted before, as it is: submitting it again
// changes nothing.
var ErrSameTask = api.ErrSameTask

// Known says what is known of tasks of a workflow before they are submitted, in their
// order: nil of one whose id is free, ErrSameTask, run.ErrKeyReused if the id was used for
// another body, or why the same one was refused. A task that waits behind a thousand
// others may not be found. Nodes of earlier releases give no answer: ErrNoAnswer.
func (c *Client) Known(ctx context.Context, workflow string, tasks []messages.Task) ([]error, error) {
	return c.conn.Known(ctx, c.tenant, workflow, tasks)
}
