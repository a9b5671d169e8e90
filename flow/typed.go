package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// ErrAnswer is returned by [Ask] for an answer that still does not match its type after
// the last repair.
var ErrAnswer = errors.New("flow: the model's answer does not have the requested type")

// maxRepairs is the number of times that Ask asks again.
const maxRepairs = 2

// Ask makes an agent answer with a T, a struct or a map with string keys, and returns it
// with the session, which has the answer as JSON. The agent may call its tools first.
//
// The request has the JSON schema of T as the format of the answer, generated as
// [tool.Func] generates the schema of arguments. If the answer does not match the schema,
// the model gets the reason and is asked again, at most twice. Each try is a step. Ask
// takes no notes: it ignores Agent.Commit. While the model answers, a's Hooks.Partial
// gets the JSON so far, which is not validated.
func Ask[T any](ctx context.Context, s session.Session, a *Agent) (session.Session, T, error) {
	var answer T
	form := tool.Func("answer", "Gives the answer.", func(_ context.Context, v T) (string, error) {
		answer = v
		return "", nil
	}, nil)
	table, err := tool.NewTable(form)
	if err != nil {
		return s, answer, fmt.Errorf("flow: ask for %T: %w", answer, err)
	}
	schema := form.Spec().Schema
	format, err := json.Marshal(map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "answer", "schema": schema}})
	if err != nil {
		return s, answer, fmt.Errorf("flow: ask for %T: %w", answer, err)
	}
	asked := *a
	asked.Commit = false
	asked.Provider.ResponseFormat = format
	if partial := a.Hooks.Partial; partial != nil {
		var p partialAnswer
		asked.Hooks.Partial = func(text string) {
			if said := p.next(text); said != "" || text == "" {
				partial(said)
			}
		}
	}
	for repairs := 0; ; repairs++ {
		if s, err = asked.Forward(ctx, s); err != nil {
			return s, answer, err
		}
		problem := read(ctx, table, s.Text())
		if problem == "" {
			return s, answer, nil
		}
		if repairs == maxRepairs {
			return s, answer, fmt.Errorf("%w: agent %s, asked %d times: %s", ErrAnswer, a.Name, repairs+1, problem)
		}
		s = s.With(session.UserText("That answer cannot be used: " + problem + "\nAnswer again, with nothing but JSON that matches this schema:\n" + string(schema)))
	}
}

// ofAnswer rewrites error messages about arguments as messages about an answer.
var ofAnswer = strings.NewReplacer("the arguments are", "it is", "the arguments have", "it has", "the arguments do", "it does", "argument", "field")

// read decodes the text of an answer by the form, and returns the reason if it does not
// match.
func read(ctx context.Context, form *tool.Table, text string) (problem string) {
	text = strings.TrimSpace(text)
	if begin, end := strings.Index(text, "{"), strings.LastIndex(text, "}"); begin >= 0 && end > begin && !json.Valid([]byte(text)) {
		text = text[begin : end+1] // text or a fence around it
	}
	if text == "" {
		return "it is empty"
	}
	_, args, err := form.Bind("answer", text)
	if f, ok := errors.AsType[*tool.Failure](err); ok {
		return ofAnswer.Replace(f.Message)
	} else if err != nil {
		return err.Error()
	}
	if o := form.Run(ctx, "answer", tool.Call{Args: args}); o.IsError {
		return string(bytes.TrimSpace(o.Body))
	}
	return ""
}
