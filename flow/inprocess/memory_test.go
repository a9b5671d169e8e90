package inprocess_test

import (
	"context"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// TestMemoriesHaveNames: a note is found only in the memory into which it was written.
func TestMemoriesHaveNames(t *testing.T) {
	work := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		if _, err := flow.Remember(ctx, "team", "fact", "the harbour opens at nine"); err != nil {
			return s, err
		}
		for name, want := range map[string]int{"team": 1, "own": 0} {
			hits, err := flow.Recall(ctx, name, "when does the harbour open", 5)
			if err != nil {
				return s, err
			}
			if len(hits) != want {
				t.Errorf("memory %q has %d notes, want %d", name, len(hits), want)
			}
		}
		return s, nil
	})
	must.Get((&inprocess.Runner{}).Run(t.Context(), work, session.New(session.UserText("go"))))(t)
}
