package evidence

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/cmd/rath/internal/app"
	"github.com/rathcluster/rath/internal/engine/transcript"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// runScript returns the model's answers of a run, in the order of its steps.
func runScript(ctx context.Context, s *app.System, r *messages.RunInfo) ([]byte, error) {
	sc := &scripted.Script{
		Name:    string(r.Run),
		Comment: fmt.Sprintf("The model's answers in run %s of %s.", r.Run, r.Workflow),
	}
	type found struct {
		path    run.Path
		name    string
		request *llm.Request
		answer  *llm.Response
	}
	var all []found
	for _, id := range append([]session.ID{r.Session}, r.Sessions...) {
		if id == "" {
			continue
		}
		key := session.Key{Tenant: s.Tenant(), ID: id}
		v, err := s.At(ctx, session.Ref{Key: key})
		if err != nil {
			return nil, err
		}
		var said []llm.Message
		for _, c := range v.Chunks() {
			if c.Kind() == session.Assistant && c.Origin().Run == string(r.Run) && c.Ref().ID == id {
				o := c.Origin()
				name := "step-" + o.Step + "-" + cmp.Or(o.Agent, "model")
				all = append(all, found{run.Path(o.Step), name, &llm.Request{Messages: said}, answerOf(c)})
			}
			said = append(said, messageOf(c, said))
		}
	}
	if len(all) == 0 {
		return nil, app.Fail(app.ExitNotFound, "run %s called no model: a script would be empty", r.Run)
	}
	slices.SortStableFunc(all, func(a, b found) int { return run.ComparePaths(a.path, b.path) })
	for _, f := range all { // some stand there twice: the home session is among the sessions
		sc.Record(f.name, f.request, f.answer)
	}
	return sc.Format()
}

// answerOf returns a row as an answer of a model.
func answerOf(c session.Chunk) *llm.Response {
	u := c.Origin().Usage
	resp := &llm.Response{Text: c.Text(), Usage: session.Usage{Input: u.Input, Output: u.Output}}
	for _, call := range c.Calls() {
		resp.Calls = append(resp.Calls, call)
	}
	return resp
}

// messageOf returns a row as a message of a request.
func messageOf(c session.Chunk, before []llm.Message) llm.Message {
	switch c.Kind() {
	case session.System:
		return llm.Message{Role: llm.System, Text: c.Text()}
	case session.Assistant:
		m := llm.Message{Role: llm.Assistant, Text: c.Text()}
		for _, call := range c.Calls() {
			m.Calls = append(m.Calls, call)
		}
		return m
	case session.ToolResult:
		for i := range before {
			for _, call := range before[i].Calls {
				if call.ID == c.CallID() {
					return llm.Message{Role: llm.Tool, Text: transcript.ToolText(c), CallID: c.CallID(), Name: c.Name()}
				}
			}
		}
		return llm.Message{Role: llm.User, Text: "Result of " + c.Name() + ": " + transcript.ToolText(c)} // the workflow called it
	}
	return llm.Message{Role: llm.User, Text: c.Text()}
}
