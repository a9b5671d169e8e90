package engine

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/transcript"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Select is the Select of a flow.Selector.
func (p *place) Select(ctx context.Context, sel flow.Selector, question string, s session.Session, candidates []string) (int, error) {
	ask := &transcript.Call{Agent: sel.Name, Prompt: sel.Prompt, Provider: &sel.Provider, Ask: question}
	for {
		choice, again, err := selects(ctx, p, ask, s, candidates)
		if err != nil || !again {
			return choice, err
		}
	}
}

// selects requests the choice once, in a step; again reports that the model must be asked
// to continue.
func selects(ctx context.Context, p *place, ask *transcript.Call, s session.Session, candidates []string) (choice int, again bool, err error) {
	st, err := p.begin(ctx, journal.StepSelection, ask.Agent, s, false, "", ask.Digest())
	if err != nil {
		return -1, false, err
	}
	defer st.end()
	st.beside = true
	var d journal.StepCompleted
	err = st.make(func() error {
		d = st.record.StepCompleted
		return rebuild(st.record)
	}, func() (journal.StepCompleted, error) {
		var resp *llm.Response
		var err error
		if resp, d, err = st.ex.models.once(st, ask, s, "selecting"); err != nil {
			return d, err
		}
		v := ask.Judge(resp)
		if v.Again != "" || v.Err != nil {
			return d, st.ex.models.judged(st, &d, ask.Agent, resp, v)
		}
		choice = excerpt.FirstInteger(v.Text)
		if choice < 0 || choice >= len(candidates) {
			choice = -1
		}
		picked := "none"
		if choice >= 0 {
			picked = candidates[choice]
		}
		value, err := json.Marshal(selection{Answer: excerpt.Clip(v.Text, 200), Candidates: candidates, Choice: choice})
		d.Value, d.Summary = string(value), "selects "+picked
		return d, err
	})
	switch {
	case err != nil:
		return -1, false, err
	case d.Again != "":
		return -1, true, ask.Resume(&d)
	}
	choice, err = chosen(d.Value)
	return choice, false, err
}

// once makes the model call of a step that needs an answer without calls of tools, and
// returns the answer with its part of the record. by names the model in an error.
func (m *modelUse) once(st *step, c *transcript.Call, s session.Session, by string) (resp *llm.Response, d journal.StepCompleted, err error) {
	resp, d.Prompt, err = m.complete(st, c, s)
	if err == nil && len(resp.Calls) > 0 {
		err = fmt.Errorf("flow: the %s model called a tool", by)
	}
	if err != nil {
		d.Code = codeOf(err)
	}
	if resp != nil {
		m.answered(st, &d, c.Agent, resp)
	}
	return resp, d, came(err)
}

type selection struct {
	Answer     string   `json:"answer"`
	Candidates []string `json:"candidates"`
	Choice     int      `json:"choice"`
}

// chosen returns the choice that a selection recorded.
func chosen(value string) (int, error) {
	var v selection
	if err := json.Unmarshal([]byte(value), &v); err != nil {
		return -1, fmt.Errorf("%w: selection: %w", run.ErrMismatch, err)
	}
	return v.Choice, nil
}
