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

// ErrAnswer is returned by [Ask] for an answer that is still not of its type after the
// last repair.
var ErrAnswer = errors.New("flow: the model's answer is not of the type that was asked for")

// maxRepairs is how often Ask asks again.
const maxRepairs = 2

// Ask lets an agent answer with a T, a struct or a map with string keys, and returns it
// with the session, which has the answer as JSON. The agent may call its tools before.
//
// The server gets the JSON schema of T, made as [tool.Func] makes that of arguments, as
// the form of the answer. What comes is checked against it: if it does not match, the
// model is told why and asked again, at most twice. Each try is a step. It takes no notes:
// Agent.Commit does not count. While the model answers, a's Hooks.Partial gets what is
// there of the JSON, which has passed no check.
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

// ofAnswer makes what is said of arguments fit an answer.
var ofAnswer = strings.NewReplacer("the arguments are", "it is", "the arguments have", "it has", "the arguments do", "it does", "argument", "field")

// read gives the text of an answer to the form, and says what is wrong with it.
func read(ctx context.Context, form *tool.Table, text string) (problem string) {
	text = strings.TrimSpace(text)
	if begin, end := strings.Index(text, "{"), strings.LastIndex(text, "}"); begin >= 0 && end > begin && !json.Valid([]byte(text)) {
		text = text[begin : end+1] // words or a fence around it
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
