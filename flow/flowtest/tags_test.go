package flowtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// tagger changes its tags: too many, and malformed ones, are rejected.
func tagger(ctx context.Context, s session.Session) (session.Session, error) {
	for _, err := range []error{flow.SetTag(ctx, "", "v"), flow.SetTag(ctx, "k", strings.Repeat("v", 10<<10)), flow.SetTag(ctx, "k k", "")} {
		if !errors.Is(err, run.ErrMalformed) {
			return s, fmt.Errorf("malformed: %v", err)
		}
	}
	for i := range run.MaxTags {
		if err := flow.SetStatus(ctx, i); err != nil {
			return s, err
		}
		if err := flow.SetTag(ctx, fmt.Sprint("k", i), "v"); err != nil {
			return s, err
		}
	}
	err := flow.SetTag(ctx, "more", "v")
	if !errors.Is(err, run.ErrMalformed) {
		return s, fmt.Errorf("tag 17: %v", err)
	}
	if err := flow.SetTag(ctx, "k3", ""); err != nil {
		return s, err
	}
	return s.With(session.AssistantText(strings.TrimPrefix(err.Error(), "flow: "))), flow.SetTag(ctx, "more", "x")
}

func TestTags(t *testing.T) {
	if text := flowtest.Run(t, flow.Func(tagger), session.New(), "testdata/word.txtar", nil).Text(); !strings.HasPrefix(text, "tag more would be number 17 of the run") {
		t.Error(text)
	}
}

func TestTagsCrashEverywhere(t *testing.T) {
	t.Parallel()
	flowtest.CrashEverywhere(t, func() flow.Workflow { return flow.Func(tagger) }, session.New(session.UserText("go")), "testdata/word.txtar", nil)
}
