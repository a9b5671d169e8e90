package flow

import (
	"context"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Fork returns a branch of s: a session of its own that starts with the contents of s.
// Its cost does not depend on the length of s, and s can continue independently. A branch
// ends with [Adopt] or [Reject]; if Forward returns another session, it ends as not
// returned.
func Fork(ctx context.Context, s session.Session) (session.Session, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return s, err
	}
	return e.Fork(ctx, s, false)
}

// Detach returns a copy of s that is not a branch of s: it has no place in the tree and
// stays open when the run ends.
func Detach(ctx context.Context, s session.Session) (session.Session, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return s, err
	}
	return e.Fork(ctx, s, true)
}

// Adopt replaces trunk by a branch: it returns trunk's next version, with the branch's
// chunks and files. The branch ends.
func Adopt(ctx context.Context, trunk, branch session.Session, reason string) (session.Session, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return trunk, err
	}
	return e.Adopt(ctx, trunk, branch, reason)
}

// Reject ends a branch that this run made. The reason is for human readers.
func Reject(ctx context.Context, branch session.Session, reason string) error {
	e, err := engineOf(ctx)
	if err != nil {
		return err
	}
	return e.Reject(ctx, branch, reason)
}

// rejectUndecided disposes of the fork on which a policy failed to decide, and returns
// why: the author may continue with another policy.
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

// Concatenate joins two sessions, which may be unrelated, into a new one: the chunks of
// a, then those of b, with a's placement. Both sessions stay unchanged. If one of them is
// quarantined the run needs review, as with [Merge].
func Concatenate(ctx context.Context, a, b session.Session) (session.Session, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return a, err
	}
	return e.Concatenate(ctx, a, b)
}

// Diff returns the changes to the files of s as a unified diff. The base of the diff is
// the files that the run started with, or those that a branch or a fork started with.
// Diff is a step. The text fits into the Detail of a question, so that the approver reads
// the approved changes themselves. A text of more than 16 KiB is cut, and its last line
// has the command that shows the whole diff. It is empty if there are no changes.
func Diff(ctx context.Context, s session.Session) (string, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return "", err
	}
	return e.Diff(ctx, s)
}

// ReadSession returns a session that the run does not hold, at a version; version zero is
// the newest when the step executes. It is a step: later executions get the same value.
// The session itself stays unchanged: extending it makes a fork. The error is
// session.ErrTenant for a session of another tenant, session.ErrNotFound for one that
// does not exist, and session.ErrArchived for an archived one.
func ReadSession(ctx context.Context, r session.Ref) (session.Session, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return session.Session{}, err
	}
	return e.ReadSession(ctx, r)
}
