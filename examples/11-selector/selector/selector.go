// Package selector is the eleventh example of the ladder: who works next is decided by code
// where code can tell, and by a model where it cannot.
package selector

import (
	"context"
	_ "embed"
	"strings"

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
		Dir: "11-selector", Name: "selector", Does: "Routes a customer's letter.",
		New: newDesk, Input: "The kettle is broken. Give me my money back!", Script: script,
	}
}

// most is the maximum number of choices for one letter.
const most = 4

// Desk routes letters.
type Desk struct {
	Choose  *flow.Selector
	Urgent  *flow.Agent
	Experts []flow.Workflow
}

// Forward implements flow.Workflow.
func (w *Desk) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	// An if is routing, too: the session decides, and the same on every execution.
	letter, _ := s.Last(session.User)
	if strings.Contains(letter.Text(), "!") {
		var err error
		if s, err = w.Urgent.Forward(ctx, s); err != nil {
			return s, err
		}
	}
	for range most {
		// The model sees names and descriptions. The choice is a step, recorded with its
		// candidates: after a crash it is not made again.
		next, err := w.Choose.Select(ctx, s, w.Experts...)
		if err != nil {
			return s, err
		}
		if _, done := next.(flow.EmptyWorkflow); done {
			break
		}
		if s, err = next.Forward(ctx, s); err != nil {
			return s, err
		}
	}
	return s, nil
}

func newDesk(s flow.Info) (flow.Workflow, error) {
	model := llm.Provider{Model: s.Model}
	expert := func(name, does string) flow.Workflow {
		return flow.Described(name, does, &flow.Agent{Name: name, Prompt: "You are the expert of " + name + ".", Provider: model})
	}
	return ladder.Prompted(s, &Desk{
		Choose: &flow.Selector{Name: "desk", Provider: model},
		Urgent: &flow.Agent{Name: "calm", Prompt: "You are the calm one. Calm the customer.", Provider: model},
		Experts: []flow.Workflow{
			expert("repair", "Says how a thing is mended."),
			expert("refund", "Gives money back."),
			expert("advice", "Says what to buy."),
		},
	})
}
