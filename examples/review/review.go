package main

import (
	"context"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/session"
)

// Review lets reviewers examine a change concurrently, each on a branch of the session, and
// keeps the one that the judge prefers.
type Review struct {
	Plan      *flow.Agent
	Reviewers []*flow.Agent
	Judge     *flow.Agent
}

// Forward implements flow.Workflow.
func (w *Review) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	s, err := w.Plan.Forward(ctx, s)
	if err != nil {
		return s, err
	}
	var branches []flow.Branch
	for _, r := range w.Reviewers {
		branches = append(branches, flow.Branch{Name: r.Name, Workflow: r})
	}
	// With nodes each branch runs wherever there is room; here all run in this
	// process. A branch that fails does not fail the others.
	j, err := flow.FanOut(ctx, s, branches, &flow.FanOutOptions{Quorum: 2})
	if err != nil {
		return s, err
	}
	return flow.Merge(ctx, j, flow.PickBest(w.Judge.Judge))
}

func newReview() *Review {
	return &Review{
		Plan: &flow.Agent{Name: "planner", Prompt: "You are the planner. Say what a reviewer should look at."},
		Reviewers: []*flow.Agent{
			{Name: "style", Prompt: "You are the reviewer of style."},
			{Name: "safety", Prompt: "You are the reviewer of safety."},
		},
		Judge: &flow.Agent{Name: "judge", Prompt: "You are the judge."},
	}
}
