package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// registration offers the workflow to tasks. Revision is recorded with every
// run: change it together with the code.
func registration() flow.Registration {
	return flow.Registration{
		Name: "summary", Revision: "1",
		Description: "Summarises a text and shortens the summary.",
		Input:       json.RawMessage(`{"type":"string","minLength":1}`),
		NewFor:      newSummary,
	}
}

// newSummary makes the workflow of one task, which brings a text.
func newSummary(s flow.Info) (flow.Workflow, error) {
	var text string
	if err := json.Unmarshal(s.Input, &text); err != nil {
		return nil, fmt.Errorf("summary: input: %w; want a text", err)
	}
	if text == "" {
		return nil, errors.New("summary: the text is empty")
	}
	model := llm.Provider{Model: s.Model}
	agents := flow.Sequence(
		&flow.Agent{Name: "reader", Provider: model, Prompt: "You are the reader. Summarise the text."},
		&flow.Agent{Name: "editor", Provider: model, Prompt: "You are the editor. Shorten the summary to one sentence."},
	)
	return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
		return agents.Forward(ctx, v.With(session.UserText(text)))
	}), nil
}
