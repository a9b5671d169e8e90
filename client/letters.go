package client

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// DeadLetters returns the rejected tasks that were neither retried nor dropped, oldest
// first: at most limit of them, 0 for all.
func (c *Client) DeadLetters(ctx context.Context, limit int) ([]messages.StoredLetter, error) {
	var all []messages.StoredLetter
	for after := uint64(0); ; {
		page, err := c.requests.DeadLetters(ctx, c.tenant, after, min(max(limit-len(all), 0), wire.MaxLimit))
		if err != nil {
			return all, fmt.Errorf("dead letters: %w", err)
		}
		all = append(all, page.Letters...)
		if limit > 0 && len(all) >= limit {
			return all[:limit], nil
		}
		if after = page.Next; after == 0 {
			return all, nil
		}
	}
}

// DeadLetter returns one rejected task by its sequence, with its message.
func (c *Client) DeadLetter(ctx context.Context, at uint64) (messages.DeadLetter, error) {
	return c.requests.DeadLetter(ctx, c.tenant, at)
}

// RetryDeadLetter submits a rejected task again and returns the run's id. by is kept as
// evidence. It returns run.ErrState for a task that would be rejected again.
func (c *Client) RetryDeadLetter(ctx context.Context, at uint64, by string) (run.ID, error) {
	id, err := c.requests.RetryDeadLetter(ctx, c.tenant, at, by)
	if err != nil {
		return "", fmt.Errorf("retry: %w", err)
	}
	c.remember(id)
	return id, nil
}

// DropDeadLetter removes a rejected task from the list. The reason is kept as evidence.
func (c *Client) DropDeadLetter(ctx context.Context, at uint64, by, reason string) error {
	if err := c.requests.DropDeadLetter(ctx, c.tenant, at, by, reason); err != nil {
		return fmt.Errorf("drop: %w", err)
	}
	return nil
}
