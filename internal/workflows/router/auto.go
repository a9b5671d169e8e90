package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// AutoInput is the input of "auto". JSON text in its place is the prompt.
type AutoInput struct {
	// Prompt is the user's message. Without one, the session holds the request.
	Prompt string `json:"prompt"`
	// Rounds is the maximum number of workflows that are chosen, one after the other; 0 is
	// DefaultRounds.
	Rounds int `json:"rounds"`
	// Workflows are the only ones to choose from; none is all on offer.
	Workflows []string `json:"workflows"`
	// Exclude are never chosen.
	Exclude []string `json:"exclude"`
	// Model chooses; "" is the task's. The workflows that are chosen get the
	// task's.
	Model string `json:"model"`
	// System instructs the model that chooses; "" is a general rubric.
	System string `json:"system"`
}

// The bounds of "auto".
const (
	DefaultRounds = 16
	MaxRounds     = 256
	maxNames      = 1024 // in Workflows and Exclude
)

const autoSchema = `{"oneOf":[{"type":"null"},{"type":"string"},{"type":"object","additionalProperties":false,"properties":{` +
	`"prompt":{"type":"string","description":"the user's message; without it the session has the work"},` +
	`"rounds":{"type":"integer","minimum":1,"maximum":256,"description":"workflows chosen at most; 16 without it"},` +
	`"workflows":{"type":"array","maxItems":1024,"items":{"type":"string","pattern":"^[A-Za-z0-9_-]{1,64}$"},"description":"the only ones to choose from"},` +
	`"exclude":{"type":"array","maxItems":1024,"items":{"type":"string","pattern":"^[A-Za-z0-9_-]{1,64}$"},"description":"never chosen"},` +
	`"model":{"type":"string","description":"the model that chooses"},` +
	`"system":{"type":"string","description":"instructs the model that chooses"}}}]}`

func autoRegistration(offers Offers) flow.Registration {
	return flow.Registration{
		Name: Auto, Revision: "1", Input: json.RawMessage(autoSchema),
		Description: "Chooses a workflow on offer by its description, runs it on the session, and chooses again until the work is done, or when it failed.",
		NewFor: func(s flow.Info) (flow.Workflow, error) {
			in, err := readAuto(s.Input)
			if err != nil {
				return nil, err
			}
			if in.Model == "" {
				in.Model = s.Model
			}
			return &auto{in, s, offers}, nil
		},
	}
}

func readAuto(raw json.RawMessage) (*AutoInput, error) {
	in := &AutoInput{}
	switch text := strings.TrimSpace(string(raw)); {
	case text == "" || text == "null":
	case text[0] == '"':
		if err := json.Unmarshal(raw, &in.Prompt); err != nil {
			return nil, refuse(Auto, "", err.Error(), "send text, or an object")
		}
	default:
		if err := messages.DecodeInput(Auto, raw, in); err != nil {
			return nil, err
		}
	}
	if in.Rounds < 0 || in.Rounds > MaxRounds {
		return nil, refuse(Auto, "rounds", fmt.Sprintf("%d is not from 1 to %d", in.Rounds, MaxRounds), fmt.Sprintf("leave it out for %d", DefaultRounds))
	}
	if in.Rounds == 0 {
		in.Rounds = DefaultRounds
	}
	if len(in.Model) > messages.MaxModel {
		return nil, refuse(Auto, "model", fmt.Sprintf("more than %d bytes", messages.MaxModel), "send the name of a model")
	}
	for _, l := range []struct {
		field string
		names []string
	}{{"workflows", in.Workflows}, {"exclude", in.Exclude}} {
		if len(l.names) > maxNames {
			return nil, refuse(Auto, l.field, fmt.Sprintf("%d names, at most %d are taken", len(l.names), maxNames), "name fewer")
		}
		for i, name := range l.names {
			at := fmt.Sprintf("%s[%d]", l.field, i)
			if err := session.ValidID("workflow", name); err != nil {
				return nil, refuse(Auto, at, strings.TrimPrefix(err.Error(), "session: "), "send the names of workflows")
			}
			if slices.Contains(l.names[:i], name) {
				return nil, refuse(Auto, at, fmt.Sprintf("%q is there twice", name), "name each once")
			}
		}
	}
	for i, name := range in.Workflows {
		if name == Auto || name == FanOut {
			return nil, refuse(Auto, fmt.Sprintf("workflows[%d]", i), name+" is not chosen by auto", "name workflows that do the work")
		}
	}
	if err := checkPrompt(Auto, "prompt", in.Prompt); err != nil {
		return nil, err
	}
	return in, checkPrompt(Auto, "system", in.System)
}

// auto is one run of the workflow.
type auto struct {
	in     *AutoInput
	task   flow.Info
	offers Offers
}

// Forward implements flow.Workflow.
func (a *auto) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	s, err := start(Auto, a.in.Prompt, s)
	if err != nil {
		return s, err
	}
	var last struct { // the previous choice, if it failed
		name string
		err  error
	}
	failures := map[string]string{}
	sel := &flow.Selector{Name: Auto, Prompt: a.in.System, Provider: llm.Provider{Model: a.in.Model}}
	for round := range a.in.Rounds {
		topic := topicOf(s)
		m, err := flow.Do(ctx, "registry look-up", func(ctx context.Context) (menu, error) {
			return candidates(ctx, a.offers, a.in, topic)
		}, tool.ReadOnly)
		if err != nil {
			return s, err
		}
		if len(m.Candidates) == 0 && round == 0 {
			return s, fmt.Errorf("auto: no offered workflow can continue a session; start a node with one, or exclude fewer: %w", session.ErrNotFound)
		}
		ws := make([]flow.Workflow, len(m.Candidates))
		for i, c := range m.Candidates {
			ws[i] = flow.Remote{Workflow: c.Name, Description: c.Description + failures[c.Name], Model: a.task.Model, Tools: a.task.Tools, MCP: a.task.MCP}
		}
		w, err := sel.Select(ctx, s, ws...)
		if err != nil {
			return s, err
		}
		chosen, ok := w.(flow.Remote)
		if !ok { // flow.EmptyWorkflow: the work is done, or no workflow can do it
			return s, failed(Auto, last.name, last.err)
		}
		last.name = chosen.Workflow
		if s, last.err, err = a.try(ctx, s, chosen); err != nil {
			return s, failed(Auto, chosen.Workflow, err)
		}
		if last.err != nil {
			failures[chosen.Workflow] = " It was chosen before and failed: " + excerpt.Clip(strings.Join(strings.Fields(last.err.Error()), " "), maxDescription)
		}
	}
	if last.err != nil {
		return s, fmt.Errorf("%w: auto chose %d workflows, and the last one, %s, failed: %w", flow.ErrMaxRounds, a.in.Rounds, last.name, last.err)
	}
	return s, fmt.Errorf("%w: auto chose %d workflows and the model never reported the work as done; raise rounds in the input", flow.ErrMaxRounds, a.in.Rounds)
}

// try runs a workflow on a branch of s and adopts its result. A failure of the workflow is
// a result: the model sees it and may choose another workflow. The session is then
// unchanged, and the branch is kept as evidence.
func (a *auto) try(ctx context.Context, s session.Session, chosen flow.Remote) (next session.Session, failure, err error) {
	j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: chosen.Workflow, Workflow: chosen}}, nil)
	if err != nil {
		return s, nil, err
	}
	if o := j.Outcomes[0]; o.Err != nil {
		if run.IsControl(o.Err) || errors.Is(o.Err, run.ErrDeadline) { // the branch's, not this run's
			return j.Base, fmt.Errorf("it %s: %s", o.State.Past(), o.Err.Error()), nil
		}
		return j.Base, o.Err, nil
	}
	next, err = flow.Merge(ctx, j, flow.Pick(0))
	return next, nil, err
}
