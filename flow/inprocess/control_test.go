package inprocess_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestControl: a request of another goroutine answers a question that Runner.Answer leaves
// open. A request that does not fit its verb, and one for no run, are errors.
func TestControl(t *testing.T) {
	work := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		color, err := flow.Await[string](ctx, "color", nil)
		return s.With(session.AssistantText(color)), err
	})
	var r *inprocess.Runner
	r = &inprocess.Runner{Answer: func(ctx context.Context, q run.Question) (any, error) {
		err := r.Control(ctx, q.Session, q.Run, messages.VerbRespond, messages.Control{Value: json.RawMessage(`"red"`)})
		if !errors.Is(err, run.ErrMalformed) {
			t.Errorf("an answer without its step: %v", err)
		}
		return nil, r.Control(ctx, q.Session, q.Run, messages.VerbRespond, messages.Control{Step: q.Step, Value: json.RawMessage(`"blue"`)})
	}}
	s := must.Get(r.Run(t.Context(), work, session.New(session.UserText("go"))))(t)
	if s.Text() != "blue" {
		t.Errorf("the answer is %q", s.Text())
	}
	err := r.Control(t.Context(), s.Key(), "nobody", messages.VerbCancel, messages.Control{Reason: "enough"})
	if !errors.Is(err, run.ErrUnknownRun) {
		t.Errorf("a cancel of no run: %v", err)
	}
}
