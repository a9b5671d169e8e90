// Package notes is the ninth example of the ladder: sessions share knowledge through notes.
package notes

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
		Dir: "09-memory", Name: "memory", Does: "Remembers two notes and recalls one.",
		New: newWaiter, Input: "What tea does Ada like?", Script: script,
	}
}

// memory is the name of the memory. All nodes have the same one.
const memory = "tearoom"

// Waiter stores a note, searches it, and asks an agent that searches it itself.
type Waiter struct{ Agent *flow.Agent }

// Forward implements flow.Workflow.
func (w *Waiter) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	for _, note := range []string{"Ada likes green tea, without sugar.", "The oven is repaired on Monday."} {
		// The name of a note comes from its step: a repeated attempt replaces its own.
		if _, err := flow.Remember(ctx, memory, "preferences", note); err != nil {
			return s, err
		}
	}
	// Recall finds by words: a note that shares no word with the question is not found.
	question, _ := s.Last(session.User)
	hits, err := flow.Recall(ctx, memory, question.Text(), 3)
	if err != nil {
		return s, err
	}
	for _, h := range hits {
		s = s.With(session.UserText("A note: " + h.Snippet))
	}
	// An agent with a memory recalls by itself, too. Its notes enter the prompt as quoted
	// words behind the session, never as orders, and are no rows of it.
	return w.Agent.Forward(ctx, s.With(session.UserText("So shall I bring Ada sugar?")))
}

func newWaiter(s flow.Info) (flow.Workflow, error) {
	return ladder.Prompted(s, &Waiter{Agent: &flow.Agent{
		Name: "waiter", Prompt: "You are the waiter.", Provider: llm.Provider{Model: s.Model},
		Memory: memory, Recall: 2,
	}})
}
