package main

import (
	"context"
	"errors"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Fix tries a change on a branch, with its own files, until a verifier accepts one. The
// rejected branches are kept as evidence, with the reason.
type Fix struct{ Code, Verify *flow.Agent }

// Forward implements flow.Workflow.
func (w *Fix) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	var hints []session.Chunk
	for range 3 {
		try, err := flow.Fork(ctx, s) // s keeps its rows and its files
		if err != nil {
			return s, err
		}
		try, err = flow.Sequence(w.Code, w.Verify).Forward(ctx, try.With(hints...))
		if err != nil {
			return s, err
		}
		if try.Text() == "ACCEPT" {
			return flow.Adopt(ctx, s, try, "the verifier accepts it")
		}
		if err := flow.Reject(ctx, try, try.Text()); err != nil {
			return s, err
		}
		hints = append(hints, session.UserText("Rejected: "+try.Text()))
	}
	return s, errors.New("fix: no attempt was accepted")
}

// newFix returns the workflow with its two agents.
func newFix() *Fix {
	return &Fix{
		Code: &flow.Agent{
			Name: "coder", Tools: pick("read_workspace_file", "write_workspace_file"),
			Prompt: "You are the coder. Change the files as you are asked to, and say what you did.",
		},
		Verify: &flow.Agent{
			Name: "verifier", Tools: pick("read_workspace_file"),
			Prompt: `You are the verifier. Read the files. Answer "ACCEPT", or say what is wrong with them.`,
		},
	}
}

// pick returns built-in tools by name.
func pick(names ...string) []tool.Tool {
	var picked []tool.Tool
	for _, name := range names {
		t, ok := tool.ByName(name)
		if !ok {
			panic("fix: there is no tool " + name)
		}
		picked = append(picked, t)
	}
	return picked
}
