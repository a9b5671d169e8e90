package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Selector asks a model which workflow should go on with a session.
type Selector struct {
	Name     string
	Prompt   string // "" is a general rubric
	Provider llm.Provider
}

const selectorPrompt = "You route work. Read the conversation and choose who goes on with it."

var firstInteger = regexp.MustCompile(`-?\d+`)

// Select returns one of ws, or EmptyWorkflow when the model names none of them
// or there are none. The decision is a step with its candidates, the answer
// and the usage.
func (sel *Selector) Select(ctx context.Context, s session.Session, ws ...Workflow) (Workflow, error) {
	if len(ws) == 0 {
		return EmptyWorkflow{}, nil
	}
	c := &call{agent: sel.Name, prompt: sel.Prompt, provider: &sel.Provider}
	if c.prompt == "" {
		c.prompt = selectorPrompt
	}
	names := make([]string, len(ws))
	var menu strings.Builder
	menu.WriteString("Answer with the number of the best choice, or -1 if the work is done.")
	for i, w := range ws {
		name, description := describe(w)
		names[i] = name
		fmt.Fprintf(&menu, "\n%d. %s: %s", i, name, description)
	}
	c.ask = menu.String()
	st, err := begin(ctx, run.StepSelection, sel.Name, s, false, "", c.digest())
	if err != nil {
		return nil, err
	}
	defer st.end()
	if st.decision == run.Replay {
		if err := rebuild(st.record); err != nil {
			return nil, err
		}
		return chosen(st.record.Value, ws)
	}
	resp, prompt, err := c.complete(st, s)
	err, ok := st.outcome(err)
	if !ok {
		return nil, err
	}
	if err == nil && len(resp.Calls) > 0 {
		err = errors.New("flow: the selecting model called a tool")
	}
	if err != nil {
		if _, commitErr := st.commitBeside(st.useless(sel.Name, resp, prompt, err)); commitErr != nil {
			return nil, commitErr
		}
		return nil, err
	}
	choice := -1
	if m := firstInteger.FindString(resp.Text); m != "" {
		if n, err := strconv.Atoi(m); err == nil && n >= 0 && n < len(ws) {
			choice = n
		}
	}
	value, err := json.Marshal(selection{Answer: clip(resp.Text, 200), Candidates: names, Choice: choice})
	if err != nil {
		return nil, st.fail(err)
	}
	picked := "nobody"
	if choice >= 0 {
		picked = names[choice]
	}
	d := run.StepCompleted{Value: string(value), Prompt: prompt, Model: resp.Model, Usage: st.ex.origin(sel.Name, st.asked.Path, session.Placement{}, resp.Usage).Usage, Summary: "selects " + picked}
	if _, err := st.commitBeside(d); err != nil {
		return nil, err
	}
	return chosen(string(value), ws)
}

// useless is the record of a step that failed for want of an answer, or with one
// that it cannot use. What that one used, it used.
func (st *step) useless(agent string, resp *llm.Response, prompt blob.Digest, err error) run.StepCompleted {
	d := run.StepCompleted{Code: codeOf(err), Error: clip(err.Error(), 1<<10), Prompt: prompt}
	if resp != nil {
		d.Model, d.Usage = resp.Model, st.ex.origin(agent, st.asked.Path, session.Placement{}, resp.Usage).Usage
	}
	return d
}

type selection struct {
	Answer     string   `json:"answer"`
	Candidates []string `json:"candidates"`
	Choice     int      `json:"choice"`
}

func chosen(value string, ws []Workflow) (Workflow, error) {
	var v selection
	if err := json.Unmarshal([]byte(value), &v); err != nil {
		return nil, fmt.Errorf("%w: selection: %w", run.ErrMismatch, err)
	}
	if v.Choice < 0 || v.Choice >= len(ws) {
		return EmptyWorkflow{}, nil
	}
	return ws[v.Choice], nil
}

func describe(w Workflow) (name, description string) {
	switch w := w.(type) {
	case described:
		return w.name, w.description
	case Remote:
		return w.Workflow, w.Description
	case *Agent:
		return w.Name, clip(firstLine(w.Prompt), 200)
	}
	return strings.TrimPrefix(reflect.TypeOf(w).String(), "*"), ""
}

// Compressor replaces a long session by a summary: Forward returns a new
// session of one user chunk. Returned by a workflow, it stands for everything
// that was said before.
type Compressor struct {
	Name     string
	Prompt   string
	Provider llm.Provider
	// Instruction is the last message of the request; "" asks for a summary.
	Instruction string
}

const compressInstruction = "Summarise the conversation above so that somebody who reads only your summary can go on: the goal, the decisions with their reasons, the state of the work and what is open."

// Forward implements Workflow.
func (c *Compressor) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	ask := &call{agent: c.Name, prompt: c.Prompt, provider: &c.Provider, ask: c.Instruction}
	if ask.ask == "" {
		ask.ask = compressInstruction
	}
	st, err := begin(ctx, run.StepCompress, c.Name, s, false, "", ask.digest())
	if err != nil {
		return s, err
	}
	defer st.end()
	var base session.Session
	var text string
	var usage session.Usage
	if st.decision == run.Replay {
		if err := rebuild(st.record); err != nil {
			return s, err
		}
		base, text, usage = st.record.Session, st.record.Value, st.record.Usage.Sub(st.record.Lost)
	} else {
		if err := st.ex.there(st.ctx, st.asked.Path, st.s.Key()); err != nil {
			return s, st.fail(fmt.Errorf("flow: compress %s: %w", s.Ref(), err))
		}
		resp, prompt, err := ask.complete(st, st.s)
		err, ok := st.outcome(err)
		if !ok {
			return s, err
		}
		switch {
		case err != nil:
		case len(resp.Calls) > 0:
			err = errors.New("flow: the summarising model called a tool")
		case strings.TrimSpace(resp.Text) == "":
			err = errors.New("flow: the summarising model said nothing")
		}
		if err != nil {
			if _, commitErr := st.commitBeside(st.useless(c.Name, resp, prompt, err)); commitErr != nil {
				return s, commitErr
			}
			return s, err
		}
		text = strings.TrimSpace(resp.Text)
		usage = st.ex.origin(c.Name, st.asked.Path, session.Placement{}, resp.Usage).Usage
		ack, err := st.commit(run.StepCompleted{
			Value: text, Prompt: prompt, Model: resp.Model, Usage: usage,
			Summary: fmt.Sprintf("compresses %s into one", count(st.s.Len(), "chunk")),
		})
		if err != nil {
			return s, err
		}
		base = ack.Session
	}
	if !st.ex.holds(st.asked.Path, base.Key()) {
		base = st.s.Committed()
	}
	l, ok := base.Link()
	if !ok {
		return s, st.fail(fmt.Errorf("flow: compress %s: it is not committed", s.Ref()))
	}
	ex := st.ex
	ex.mu.Lock()
	ex.sessions.alias(st.s, base)
	ex.mu.Unlock()
	key := session.Key{Tenant: ex.home.Tenant, ID: ex.rt.Mint.Child(ex.home.Tenant, string(ex.levels.owner(st.asked.Path).run), string(st.asked.Path))}
	o := session.Origin{Agent: c.Name, Workflow: ex.reg.Name, Node: ex.rt.Node, Run: string(ex.id), Step: string(st.asked.Path), Usage: usage, Placement: base.Placement()}
	open := session.Opening{Kind: session.OpenCompress, Parents: []session.Link{l}, Run: string(ex.levels.owner(st.asked.Path).run), Step: string(st.asked.Path)}
	out, err := ex.claim(ctx, st.asked.Path, key, base.Root(), open, []session.Event{session.ChunkEvent(session.UserText(text).Of(o))}, &heldSession{parent: base.Key()})
	if err != nil {
		return s, st.fail(err)
	}
	return out, nil
}
