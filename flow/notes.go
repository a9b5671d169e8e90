package flow

import (
	"context"

	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/session"
)

// Recall searches a memory and records what it found, by name. It returns at
// most limit notes, best first. Notes of sessions that are quarantined, or of
// which that cannot be read, are left out, and the record says so.
func Recall(ctx context.Context, name, query string, limit int) ([]memory.Hit, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return nil, err
	}
	return e.Recall(ctx, name, query, limit)
}

// Remember writes a note into a memory and returns its name. The name comes
// from the step, so that a repeated attempt replaces its own note. The note says
// which session and run it is from: it is not recalled while that session is
// quarantined.
func Remember(ctx context.Context, name, category, text string) (uri string, err error) {
	e, err := engineOf(ctx)
	if err != nil {
		return "", err
	}
	return e.Remember(ctx, name, category, text)
}

// ArchiveSession stores the chunks of a session in a memory, where later recalls find them,
// and returns the name they are listed under.
func ArchiveSession(ctx context.Context, s session.Session, name string) (uri string, err error) {
	e, err := engineOf(ctx)
	if err != nil {
		return "", err
	}
	return e.ArchiveSession(ctx, s, name)
}
