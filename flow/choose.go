package flow

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// Selector asks a model to choose the workflow that continues with a session.
type Selector struct {
	Name     string
	Prompt   string // "" is a general rubric
	Provider llm.Provider
}

const selectorPrompt = "You route work. Read the conversation and choose who goes on with it."

// Select returns one of ws, or EmptyWorkflow when the model names none of them
// or there are none. The decision is a step with its candidates, the answer
// and the usage.
func (sel *Selector) Select(ctx context.Context, s session.Session, ws ...Workflow) (Workflow, error) {
	if len(ws) == 0 {
		return EmptyWorkflow{}, nil
	}
	e, err := engineOf(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(ws))
	var menu strings.Builder
	menu.WriteString("Answer with the number of the best choice, or -1 if the work is done.")
	for i, w := range ws {
		name, description := describe(w)
		names[i] = name
		fmt.Fprintf(&menu, "\n%d. %s: %s", i, name, description)
	}
	asked := *sel
	asked.Prompt = cmp.Or(sel.Prompt, selectorPrompt)
	choice, err := e.Select(ctx, asked, menu.String(), s, names)
	if err != nil {
		return nil, err
	}
	if choice < 0 || choice >= len(ws) {
		return EmptyWorkflow{}, nil
	}
	return ws[choice], nil
}

func describe(w Workflow) (name, description string) {
	switch w := w.(type) {
	case described:
		return w.name, w.description
	case Remote:
		return w.Workflow, w.Description
	case *Agent:
		return w.Name, excerpt.Clip(excerpt.FirstLine(w.Prompt), 200)
	}
	return strings.TrimPrefix(reflect.TypeOf(w).String(), "*"), ""
}

// Compressor replaces a long session by a summary: Forward returns a new session of one
// user chunk and the kept chunks. If a workflow returns this session, it replaces all
// earlier chunks.
type Compressor struct {
	Name     string
	Prompt   string
	Provider llm.Provider
	// Instruction is the last message of the request; "" asks for a summary.
	Instruction string
	// Keep is the estimated number of tokens of the newest chunks that follow the summary
	// unchanged, with each tool call beside its result. The model sees only the other
	// chunks, quoted and cut to its limit. System chunks, the additions of
	// [AddWorkspaceGuide] and the user's newest chunk stay before the summary. 0 keeps
	// none.
	Keep int64
}

const compressInstruction = "Summarise the conversation above so that somebody who reads only your summary can go on: the goal, the decisions with their reasons, the state of the work and what is open."

// Forward implements Workflow.
func (c *Compressor) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return s, err
	}
	asked := *c
	asked.Instruction = cmp.Or(c.Instruction, compressInstruction)
	return e.Compress(ctx, asked, s)
}
