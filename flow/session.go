package flow

import (
	"context"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Fork returns a branch of s: a session of its own that starts as s is. It
// costs the same however long s is, and s can go on independently. A branch
// ends with [Adopt], [Reject] or, if Forward returns something else, as not
// returned.
func Fork(ctx context.Context, s session.Session) (session.Session, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return s, err
	}
	return e.Fork(ctx, s, false)
}

// Detach returns a copy of s that is no branch of it: it has no place in the
// tree and stays open when the run ends.
func Detach(ctx context.Context, s session.Session) (session.Session, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return s, err
	}
	return e.Fork(ctx, s, true)
}

// Adopt moves trunk to what a branch became: it returns trunk's next version,
// with the branch's chunks and files. The branch ends.
func Adopt(ctx context.Context, trunk, branch session.Session, reason string) (session.Session, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return trunk, err
	}
	return e.Adopt(ctx, trunk, branch, reason)
}

// Reject ends a branch that this run made, for a reason that people will read.
func Reject(ctx context.Context, branch session.Session, reason string) error {
	e, err := engineOf(ctx)
	if err != nil {
		return err
	}
	return e.Reject(ctx, branch, reason)
}

// rejectUndecided disposes of the fork on which a policy failed to decide, and returns
// why it failed: the author may go on with another policy.
func rejectUndecided(ctx context.Context, why error, s session.Session) error {
	return reject(ctx, why, s, journal.NotDecided)
}

// reject disposes likewise of a session, for a reason.
func reject(ctx context.Context, why error, s session.Session, reason string) error {
	if run.IsControl(why) {
		return why // no step follows
	}
	if err := Reject(ctx, s, reason); err != nil {
		return err
	}
	return why
}

// Concatenate joins two sessions, which need not be related, into a new one:
// the chunks of a, then those of b, with a's placement. Both stay as they are.
// If one of them is quarantined the run needs review, as with [Merge].
func Concatenate(ctx context.Context, a, b session.Session) (session.Session, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return a, err
	}
	return e.Concatenate(ctx, a, b)
}

// Diff returns how the files of s differ from those that it came with, as a unified
// diff: the session of the run from those that the run found, a branch or a fork from
// those that it began with. It is a step. The text fits into the Detail of a question,
// so that a person approves what is read; one that is longer than 16 KiB is cut, and
// its last line tells how to see the whole. It is empty if nothing differs.
func Diff(ctx context.Context, s session.Session) (string, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return "", err
	}
	return e.Diff(ctx, s)
}

// ReadSession returns a session that the run does not hold, at a version; version zero
// is the newest when the step is executed. It is a step: later executions get
// the same value. The session stays as it is: what extends it makes a fork.
// A session of another tenant is session.ErrTenant, one that there is not
// session.ErrNotFound, and one that is archived session.ErrArchived.
func ReadSession(ctx context.Context, r session.Ref) (session.Session, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return session.Session{}, err
	}
	return e.ReadSession(ctx, r)
}
