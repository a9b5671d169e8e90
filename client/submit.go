package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// NewID draws the id of a run.
func NewID() run.ID { return run.ID(strings.ToLower(rand.Text()[:20])) }

// maxSubmitted bounds the ids that a client remembers.
const maxSubmitted = 10_000

// Submit submits a task for a workflow and returns the run's id, which is
// drawn if the task has none, once the task is stored. Submitting the same
// task under the same id again is harmless. The run's events and its result say
// that a workflow is unknown or a session busy. A reused id is only in the events:
// see Do.
func (c *Client) Submit(ctx context.Context, workflow string, t messages.Task) (run.ID, error) {
	if t.ID == "" {
		t.ID = NewID()
	}
	if err := session.ValidID("workflow", workflow); err != nil {
		return "", err
	}
	body, err := t.Encode()
	if err != nil {
		return "", err
	}
	c.remember(t.ID)
	if err := c.requests.Submit(ctx, c.tenant, workflow, body); err != nil {
		return "", fmt.Errorf("submit task %s: %w", t.ID, err)
	}
	return t.ID, nil
}

func (c *Client) remember(id run.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.submitted) >= maxSubmitted {
		clear(c.submitted)
	}
	c.submitted[id] = struct{}{}
}

func (c *Client) mine(id run.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.submitted[id]
	return ok
}

// ErrSameTask means that a task was submitted before, as it is: submitting it again
// changes nothing.
var ErrSameTask = requests.ErrSameTask

// Known says what is known of tasks of a workflow before they are submitted, in their
// order: nil of one whose id is free, ErrSameTask, run.ErrKeyReused if the id was used for
// another body, run.ErrState if it was cancelled before it was submitted, or why the same
// one was refused. A task that waits behind a thousand others may not be found.
func (c *Client) Known(ctx context.Context, workflow string, tasks []messages.Task) ([]error, error) {
	return c.requests.Known(ctx, c.tenant, workflow, tasks)
}
