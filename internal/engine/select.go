package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/excerpt"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Select is the Select of a flow.Selector.
func (p *place) Select(ctx context.Context, sel flow.Selector, question string, s session.Session, candidates []string) (int, error) {
	ask := &call{agent: sel.Name, prompt: sel.Prompt, provider: &sel.Provider, ask: question}
	for {
		choice, again, err := p.selects(ctx, ask, s, candidates)
		if err != nil || !again {
			return choice, err
		}
	}
}

// selects asks for the choice once, in a step; again reports that the model is to be asked on.
func (p *place) selects(ctx context.Context, ask *call, s session.Session, candidates []string) (choice int, again bool, err error) {
	st, err := p.begin(ctx, journal.StepSelection, ask.agent, s, false, "", ask.digest())
	if err != nil {
		return -1, false, err
	}
	defer st.end()
	if st.decision == journal.Replay {
		if err := rebuild(st.record); err != nil {
			return -1, false, err
		}
		if st.record.Again != "" {
			return -1, true, ask.resumed(&st.record.StepCompleted)
		}
		choice, err = chosen(st.record.Value)
		return choice, false, err
	}
	resp, prompt, err := ask.complete(st, s)
	err, ok := st.outcome(err)
	if !ok {
		return -1, false, err
	}
	if err == nil && len(resp.Calls) > 0 {
		err = errors.New("flow: the selecting model called a tool")
	}
	if err != nil {
		return -1, false, st.recordUseless(ask.agent, resp, prompt, err)
	}
	v := ask.judge(resp)
	if v.again != "" || v.err != nil {
		return -1, true, st.askOn(ask, resp, prompt, v)
	}
	choice = excerpt.FirstInteger(v.text)
	if choice < 0 || choice >= len(candidates) {
		choice = -1
	}
	value, err := json.Marshal(selection{Answer: excerpt.Clip(v.text, 200), Candidates: candidates, Choice: choice})
	if err != nil {
		return -1, false, st.fail(err)
	}
	picked := "none"
	if choice >= 0 {
		picked = candidates[choice]
	}
	d := journal.StepCompleted{Value: string(value), Prompt: prompt, Usage: st.ex.origin(ask.agent, st.asked.Path, session.Placement{}, resp.Usage).Usage, Summary: "selects " + picked}
	ends(&d, resp)
	if _, err := st.commitBeside(d); err != nil {
		return -1, false, err
	}
	return choice, false, nil
}

// askOn commits, beside the session, that the model is asked on after an answer, or why that
// is the end.
func (st *step) askOn(c *call, resp *llm.Response, prompt blob.Digest, v judgement) error {
	d := journal.StepCompleted{Prompt: prompt}
	st.judged(&d, c.agent, resp, v)
	var err error
	if d.Value, err = partialOf(resp, v); err != nil {
		return st.fail(err)
	}
	if _, err := st.commitBeside(d); err != nil {
		return err
	}
	if v.err != nil {
		return v.err
	}
	return c.resumed(&d)
}

// recordUseless commits that the step failed with err: without an answer, or with one
// that it cannot use, whose usage counts.
func (st *step) recordUseless(agent string, resp *llm.Response, prompt blob.Digest, err error) error {
	d := journal.StepCompleted{Code: codeOf(err), Prompt: prompt}
	if resp != nil {
		ends(&d, resp)
		d.Usage = st.ex.origin(agent, st.asked.Path, session.Placement{}, resp.Usage).Usage
	}
	st.s = session.Session{}
	return st.recordFailure(err, d)
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
