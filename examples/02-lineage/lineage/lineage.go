// Package lineage is the second example of the ladder: forks of sessions.
package lineage

import (
	"context"
	_ "embed"

	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

//go:embed model.txtar
var script []byte

// Rung is the example.
func Rung() ladder.Rung {
	return ladder.Rung{
		Dir: "02-lineage", Name: "lineage", Does: "A draft is tried in two ways.",
		New: newDrafts, Input: "A greeting for a lighthouse.", Script: script,
	}
}

// Drafts writes a draft, tries two others from there, and keeps one.
type Drafts struct{ Writer *flow.Agent }

// Forward implements flow.Workflow.
func (w *Drafts) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	s, err := w.Writer.Forward(ctx, s)
	if err != nil {
		return s, err
	}
	// A fork is a session of its own that begins as s is. It costs the same for ten rows
	// and for a hundred thousand, and s goes on independently.
	short, err := flow.Fork(ctx, s)
	if err != nil {
		return s, err
	}
	if short, err = w.Writer.Forward(ctx, short.With(session.UserText("Shorter, please."))); err != nil {
		return s, err
	}
	warm, err := flow.Fork(ctx, s)
	if err != nil {
		return s, err
	}
	if warm, err = w.Writer.Forward(ctx, warm.With(session.UserText("Warmer, please."))); err != nil {
		return s, err
	}
	// A detached copy is no branch: it has no place in the tree, and stays open when the
	// run ends.
	if _, err := flow.Detach(ctx, warm); err != nil {
		return s, err
	}
	// Every branch ends: with a reason that people read later, or as what s becomes.
	if err := flow.Reject(ctx, short, "it says too little"); err != nil {
		return s, err
	}
	return flow.Adopt(ctx, s, warm, "it is warmer")
}

func newDrafts(s flow.Info) (flow.Workflow, error) {
	return ladder.Prompted(s, &Drafts{Writer: &flow.Agent{
		Name: "writer", Prompt: "You are the writer.", Provider: llm.Provider{Model: s.Model},
	}})
}
