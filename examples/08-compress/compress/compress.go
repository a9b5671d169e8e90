// Package compress is the eighth example of the ladder: a summary in the place of a session.
package compress

import (
	"context"
	_ "embed"
	"fmt"

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
		Dir: "08-compress", Name: "compress", Does: "Sums up a talk and goes on.",
		New: newTalk, Input: "How do tides come about?", Script: script,
	}
}

// Talk asks some questions, compresses the conversation, and asks the last question.
type Talk struct {
	Expert *flow.Agent
	Sum    *flow.Compressor
}

// Forward implements flow.Workflow.
func (w *Talk) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	s, err := w.Expert.Forward(ctx, s)
	if err != nil {
		return s, err
	}
	for _, question := range []string{"And why are there two a day?", "Does the sun matter?"} {
		if s, err = w.Expert.Forward(ctx, s.With(session.UserText(question))); err != nil {
			return s, err
		}
	}
	before := s.Len()
	// A summary is a session of one row. Returned by a workflow it stands for everything
	// before it; the old rows stay in the log, as earlier versions.
	if s, err = w.Sum.Forward(ctx, s); err != nil {
		return s, err
	}
	s = s.With(session.UserText(fmt.Sprintf("%d rows became %d. So when is the next high tide?", before, s.Len())))
	return w.Expert.Forward(ctx, s)
}

// An agent also compresses by itself, before its session is too long for the model: see
// Agent.MaxContext and Agent.Overflow.
func newTalk(s flow.Info) (flow.Workflow, error) {
	model := llm.Provider{Model: s.Model}
	return ladder.Prompted(s, &Talk{
		Expert: &flow.Agent{Name: "expert", Prompt: "You are the expert.", Provider: model},
		Sum:    &flow.Compressor{Name: "summary", Prompt: "You are the summary.", Provider: model},
	})
}
