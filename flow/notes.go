package flow

import (
	"context"

	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/session"
)

// Recall searches a memory by name and records the notes found. It returns at most limit
// notes, best first. Notes of quarantined sessions, and of sessions whose state cannot be
// read, are omitted, and the record mentions them.
func Recall(ctx context.Context, name, query string, limit int) ([]memory.Hit, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return nil, err
	}
	return e.Recall(ctx, name, query, limit)
}

// Remember writes a note into a memory and returns its name. The name derives from the
// step, so that a repeated attempt replaces its own note. The note names its session and
// run: it is not recalled while that session is quarantined.
func Remember(ctx context.Context, name, category, text string) (uri string, err error) {
	e, err := engineOf(ctx)
	if err != nil {
		return "", err
	}
	return e.Remember(ctx, name, category, text)
}

// ArchiveSession stores the chunks of a session in a memory, where later recalls find
// them, and returns their name in the memory's list.
func ArchiveSession(ctx context.Context, s session.Session, name string) (uri string, err error) {
	e, err := engineOf(ctx)
	if err != nil {
		return "", err
	}
	return e.ArchiveSession(ctx, s, name)
}
