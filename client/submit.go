package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// NewID returns a random id for a run.
func NewID() run.ID { return run.ID(strings.ToLower(rand.Text()[:20])) }

// maxSubmitted bounds the ids that a client remembers.
const maxSubmitted = 10_000

// Submit submits a task for a workflow and returns the run's id once the task is
// stored. A task without an id gets a random one. Submitting the same task under the
// same id again is harmless. Another body under an id of the last 20 seconds is
// run.ErrKeyReused; later, only the run's events report it: see Do. An unknown workflow or
// a busy session is reported by the run's events and its result.
func (c *Client) Submit(ctx context.Context, workflow string, t messages.Task) (run.ID, error) {
	if t.ID == "" {
		t.ID = NewID()
	}
	if err := session.ValidID("workflow", workflow); err != nil {
		return "", err
	}
	if err := t.NotOfClient(); err != nil {
		return "", err
	}
	body, err := t.Encode()
	if err != nil {
		return "", err
	}
	c.remember(t.ID)
	again, err := c.requests.Submit(ctx, c.tenant, workflow, string(t.ID), body)
	if again {
		// The mark of the message proves nothing: any tenant's client may have used it.
		known, failed := c.Known(ctx, workflow, []messages.Task{t})
		switch {
		case failed == nil && errors.Is(known[0], ErrSameTask):
			return t.ID, nil
		case failed == nil && known[0] != nil:
			return "", known[0]
		}
		_, err = c.requests.Submit(ctx, c.tenant, workflow, "", body)
	}
	if err != nil {
		return "", fmt.Errorf("submit task %s: %w", t.ID, err)
	}
	return t.ID, nil
}

func (c *submissions) remember(id run.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.submitted) >= maxSubmitted {
		clear(c.submitted)
	}
	c.submitted[id] = struct{}{}
}

func (c *submissions) mine(id run.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.submitted[id]
	return ok
}

// ErrSameTask means that the same task was submitted before; submitting it again has no
// effect.
var ErrSameTask = requests.ErrSameTask

// Known returns the status of tasks of a workflow before their submission, in their
// order: nil if the id is free, ErrSameTask, run.ErrKeyReused if the id was used for
// another body, run.ErrState if it was cancelled before the submission, or the reason
// why the same task was rejected. A task that waits behind a thousand others may not be
// found.
func (c *Client) Known(ctx context.Context, workflow string, tasks []messages.Task) ([]error, error) {
	return c.requests.Known(ctx, c.tenant, workflow, tasks)
}
