package flowtest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestManyRowsCrashEverywhere: rows that need several commits, before a step and at the
// end of the run, are all stored or continue to be committed, wherever it crashes.
func TestManyRowsCrashEverywhere(t *testing.T) {
	t.Parallel()
	rows := make([]session.Chunk, 600)
	for i := range rows {
		rows[i] = session.UserText(fmt.Sprint("row ", i, strings.Repeat(" and more", 100)))
	}
	newWorkflow := func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := (&flow.Agent{Name: "reader"}).Forward(ctx, s.With(rows...))
			return s.With(rows...), err
		})
	}
	flowtest.CrashEverywhere(t, newWorkflow, session.New(session.UserText("read it")), "testdata/word.txtar", nil)
}

// TestLargeValueCrashEverywhere: a value that is larger than a commit is kept, wherever it
// crashes.
func TestLargeValueCrashEverywhere(t *testing.T) {
	t.Parallel()
	newWorkflow := func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			text, err := flow.Do(ctx, "read", func(context.Context) (string, error) { return strings.Repeat("much text ", 100_000), nil }, tool.ReadOnly)
			return s.With(session.AssistantText(text)), err
		})
	}
	flowtest.CrashEverywhere(t, newWorkflow, session.New(session.UserText("read it")), "testdata/word.txtar", nil)
}
