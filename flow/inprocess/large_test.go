package inprocess_test

import (
	"context"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestLarge: rows and values larger than a commit are kept as on nodes.
func TestLarge(t *testing.T) {
	large := strings.Repeat("a long text ", 200_000)
	work := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		text, err := flow.Do(ctx, "read", func(context.Context) (string, error) { return large, nil }, tool.ReadOnly)
		return s.With(session.AssistantText(text)), err
	})
	var r inprocess.Runner
	s, err := r.Run(t.Context(), work, session.New(session.UserText(large)))
	if err == nil {
		s, err = r.Run(t.Context(), work, s)
	}
	if first, _ := s.At(0); err != nil || s.Len() != 3 || first.Text() != large || s.Text() != large {
		t.Errorf("the session has %d rows: %v", s.Len(), err)
	}
}
