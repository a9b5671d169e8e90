package requests

import (
	"context"
	"fmt"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// DeadLetters returns a page of a tenant's dead letters: those after a
// sequence, oldest first, at most limit; zero is as many as a page holds.
func (c *Requests) DeadLetters(ctx context.Context, t session.Tenant, after uint64, limit int) (wire.DeadLetters, error) {
	data, err := c.Query(ctx, t, messages.QueryLetters, wire.Query{After: after, Limit: limit})
	if err != nil {
		return wire.DeadLetters{}, err
	}
	return messages.Decode[wire.DeadLetters]("dead letters", data)
}

// DeadLetter returns one of a tenant's dead letters by its sequence, or
// session.ErrNotFound.
func (c *Requests) DeadLetter(ctx context.Context, t session.Tenant, at uint64) (messages.DeadLetter, error) {
	page, err := c.DeadLetters(ctx, t, max(at, 1)-1, 1)
	if err == nil && (len(page.Letters) == 0 || page.Letters[0].At != at) {
		err = NoLetter(at)
	}
	if err != nil {
		return messages.DeadLetter{}, err
	}
	return page.Letters[0].Letter, nil
}

func NoLetter(at uint64) error {
	return fmt.Errorf("dead letter %d: %w; list them to see which there are", at, session.ErrNotFound)
}

// RetryDeadLetter submits the task of a dead letter again and returns its run. The run
// keeps its id if no result was published under it; otherwise it gets another id, the same
// for each retry of the letter. The error is run.ErrState for a task that would be refused
// for the same reason.
func (c *Requests) RetryDeadLetter(ctx context.Context, t session.Tenant, at uint64, d messages.Control) (run.ID, error) {
	note, err := controlLetter(ctx, c, t, at, messages.VerbRetry, d)
	return run.ID(note), err
}

// DropDeadLetter marks a dead letter as dropped: no action is needed.
func (c *Requests) DropDeadLetter(ctx context.Context, t session.Tenant, at uint64, d messages.Control) error {
	_, err := controlLetter(ctx, c, t, at, messages.VerbDrop, d)
	return err
}

func controlLetter(ctx context.Context, c *Requests, t session.Tenant, at uint64, verb string, b messages.Control) (note string, err error) {
	return controlAt(ctx, c, t, func(user string) string { return messages.LetterSubject(t, user, at, verb) }, b)
}

// Quota requests a change of the quota of a tenant; see messages.QuotaSubject.
func (c *Requests) Quota(ctx context.Context, t session.Tenant, verb string, b messages.Control) error {
	_, err := controlAt(ctx, c, t, func(user string) string { return messages.QuotaSubject(t, user, verb) }, b)
	return err
}

// controlAt sends a request of control to the subject of a user.
func controlAt(ctx context.Context, c *Requests, t session.Tenant, subject func(user string) string, b messages.Control) (note string, err error) {
	b.By = claimOf(b.By, c.via)
	body, err := messages.Encode(b)
	if err != nil {
		return "", err
	}
	user, err := c.user(ctx, t)
	if err != nil {
		return "", err
	}
	return answered(ctx, func(ctx context.Context) ([]byte, error) {
		return c.conn.Ask(ctx, subject(user), body)
	})
}
