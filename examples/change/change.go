package main

import (
	"context"
	"errors"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Change changes files and commits the approved result. Researchers examine the task
// concurrently, a judge picks a finding, and a coder works until the patch is approved.
type Change struct {
	Request     string // the user's request
	Research    []*flow.Agent
	Judge, Code *flow.Agent
	// Commit stores a patch under an id. The same id again changes nothing.
	Commit func(ctx context.Context, id, patch string) error
}

// Forward implements flow.Workflow.
func (w *Change) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	s = s.With(session.UserText(w.Request))
	var branches []flow.Branch
	for _, r := range w.Research {
		branches = append(branches, flow.Branch{Name: r.Name, Workflow: r})
	}
	j, err := flow.FanOut(ctx, s, branches, nil)
	if err != nil {
		return s, err
	}
	if s, err = flow.Merge(ctx, j, flow.PickBest(w.Judge.Judge)); err != nil {
		return s, err
	}
	for range 3 {
		if s, err = w.Code.Forward(ctx, s); err != nil {
			return s, err
		}
		patch, err := flow.Diff(ctx, s)
		if err != nil {
			return s, err
		}
		a, err := flow.Approve(ctx, "commit", &flow.AwaitOptions{Title: "Commit this patch?", Detail: patch})
		if err != nil {
			return s, err
		}
		if a.Approved {
			return w.commit(ctx, s, patch)
		}
		s = s.With(session.UserText("Not approved: " + a.Reason))
	}
	return s, errors.New("change: no patch was approved")
}

// commit stores the patch. A crash in the middle of it does no harm: the id is the
// same when the run goes on.
func (w *Change) commit(ctx context.Context, s session.Session, patch string) (session.Session, error) {
	id := flow.NewID(ctx)
	_, err := flow.Do(ctx, "commit", func(ctx context.Context) (string, error) {
		return id, w.Commit(ctx, id, patch)
	}, tool.Idempotent)
	return s, err
}

// newChange returns the workflow of a request, with its agents on one provider.
func newChange(request string, p llm.Provider, commit func(ctx context.Context, id, patch string) error) *Change {
	write, _ := tool.ByName("write_workspace_file")
	return &Change{
		Request: request,
		Research: []*flow.Agent{
			{Name: "users", Provider: p, Prompt: "You are the researcher of users. Say what people expect."},
			{Name: "usage", Provider: p, Prompt: "You are the researcher of usage. Say what others do."},
		},
		Judge: &flow.Agent{Name: "judge", Provider: p, Prompt: "You are the judge."},
		Code: &flow.Agent{
			Name: "coder", Provider: p, Tools: []tool.Tool{write},
			Prompt: "You are the coder. Change the files, and say what you did.",
		},
		Commit: commit,
	}
}
