package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestReadWithoutLog: a session that is unavailable now is not unreadable. The attempt
// ends, and a later one reads it.
func TestReadWithoutLog(t *testing.T) {
	var w world
	odd := session.Key{Tenant: home.Tenant, ID: "odd"}
	forward(t, t.Context(), start(t, w.runtime(nil), func(_ context.Context, s session.Session) (session.Session, error) {
		return s.With(session.UserText("odd")), nil
	}, func(task *journal.Task) { task.ID, task.Session = "o", odd }), run.Succeeded)
	log := &blindLog{Log: &w.Memory, fails: errors.New("no responders")}
	work := func(ctx context.Context, s session.Session) (session.Session, error) {
		other, err := flow.ReadSession(ctx, session.Ref{Key: odd, Version: 1})
		if err != nil {
			return s, err
		}
		return s.With(session.UserText("it says " + other.Text())), nil
	}
	process := func() *inprocess.Runtime {
		rt := w.runtime(nil)
		rt.Runtime.Values = journal.NewValues(log)
		return rt
	}
	if state, err := start(t, process(), work).Forward(t.Context()); state != run.Running || !errors.Is(err, session.ErrUnavailable) || !errors.Is(err, log.fails) {
		t.Errorf("the log is away: state %s: %v", state, err)
	}
	log.fails = nil
	if state, err := start(t, process(), work, resume).Forward(t.Context()); state != run.Succeeded {
		t.Errorf("the log is back: state %s: %v", state, err)
	}
}
