package reference

import (
	"context"
	"encoding/hex"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/session"
)

// None is the name of no files.
const None = "-"

// Head returns the files of a name: of a session, a version of one, a run, or the head
// itself.
func Head(ctx context.Context, s *app.System, name string) (blob.Digest, error) {
	_, head, err := Files(ctx, s, name)
	return head, err
}

// Files is Head with the session, which is the zero Session for a head and for None.
func Files(ctx context.Context, s *app.System, name string) (v session.Session, head blob.Digest, err error) {
	if name == None {
		return v, head, nil
	}
	if _, err := hex.DecodeString(name); err == nil && len(name) == 64 {
		head, err = blob.ParseDigest(name)
		return v, head, err
	}
	n, err := Resolve(ctx, s, name)
	if err != nil {
		return v, head, err
	}
	if v, err = s.At(ctx, n.Ref(s.Tenant())); err != nil {
		return v, head, err
	}
	if head = v.Placement().Head; head.IsZero() {
		return v, head, app.Fail(app.ExitNotFound, "session %s has no files: it was never sent to a sandbox", n)
	}
	return v, head, nil
}

// Ancestor returns the nearest common version of two sessions; ok is false for the
// files of a head and for unrelated sessions.
func Ancestor(a, b session.Session) (at session.Ref, ok bool) {
	if a.Unborn() || b.Unborn() {
		return at, false
	}
	_, at, ok = session.CommonLen(a, b)
	return at, ok
}
