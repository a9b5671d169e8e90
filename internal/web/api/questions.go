package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/web/problem"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// questions is a page of the open questions, those of the newest runs first.
type questions struct {
	Questions []client.Question `json:"questions"`
	Next      uint64            `json:"next,omitempty"`
}

// question is an open question with all that its answer is about.
type question struct {
	Question client.Question `json:"question"`
	// Call is the tool call that an approval is about, as the model wrote it.
	Call *session.ToolCall `json:"call,omitempty"`
	// Detail is the text beside the title, such as a diff to approve.
	Detail string `json:"detail,omitempty"`
	// Schema is the JSON Schema of the value that answers the question.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Digest is the digest of all of that, for the digest of an answer.
	Digest string `json:"digest"`
}

var errStale = &problem.Error{Code: problem.CodeStale, Text: "the question is not the one that was shown", Remedy: "read it again, and answer the present one"}

// listQuestions answers with the questions of a page of waiting runs.
func listQuestions(ctx context.Context, c *call) (any, error) {
	q, err := c.page()
	if err != nil {
		return nil, err
	}
	q.States = []run.State{run.Waiting}
	if c.caller.Narrow() {
		q.Where = "by=" + c.caller.User
	}
	page, err := c.runs(ctx, q)
	if err != nil {
		return nil, err
	}
	out := questions{Questions: []client.Question{}, Next: page.Next}
	for i := range page.Runs {
		own, err := c.caller.Owns(ctx, &page.Runs[i])
		if err != nil {
			return nil, err
		}
		if own {
			out.Questions = append(out.Questions, client.QuestionsOf(&page.Runs[i])...)
		}
	}
	return out, nil
}

// showQuestion answers with one question of a run.
func showQuestion(ctx context.Context, c *call) (any, error) {
	return questionOf(ctx, c, run.Path(c.path("step")))
}

// questionOf reads the question of the run at a step, or its only one for "".
func questionOf(ctx context.Context, c *call, step run.Path) (question, error) {
	r, err := c.client().Runs.Get(ctx, c.run())
	if err != nil {
		return question{}, err
	}
	open := client.QuestionsOf(&r)
	i := slices.IndexFunc(open, func(q client.Question) bool { return q.Step == step })
	switch {
	case step == "" && len(open) == 1:
		i = 0
	case i < 0 && r.State.Terminal():
		return question{}, fmt.Errorf("run %s asks nothing any more, it has ended (%s): %w", r.Run, r.State, run.ErrState)
	case i < 0:
		return question{}, fmt.Errorf("run %s has no open question at step %q: %w; list the questions with GET %s/questions", r.Run, step, run.ErrState, prefix)
	}
	q := question{Question: open[i], Detail: r.Details[open[i].Step], Schema: r.Schemas[open[i].Step]}
	if q.Question.Kind == run.WaitApproval {
		switch asked, err := c.client().Questions.Call(ctx, q.Question); {
		case err == nil:
			q.Call = &asked
		case !errors.Is(err, session.ErrNotFound):
			return question{}, err
		}
	}
	shown, err := json.Marshal(&q)
	if err != nil {
		return question{}, err
	}
	sum := sha256.Sum256(shown)
	q.Digest = hex.EncodeToString(sum[:])
	return q, nil
}
