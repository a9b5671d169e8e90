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
	st, err := p.begin(ctx, journal.StepSelection, sel.Name, s, false, "", ask.digest())
	if err != nil {
		return -1, err
	}
	defer st.end()
	if st.decision == journal.Replay {
		if err := rebuild(st.record); err != nil {
			return -1, err
		}
		return chosen(st.record.Value)
	}
	resp, prompt, err := ask.complete(st, s)
	err, ok := st.outcome(err)
	if !ok {
		return -1, err
	}
	if err == nil && len(resp.Calls) > 0 {
		err = errors.New("flow: the selecting model called a tool")
	}
	if err != nil {
		return -1, st.recordUseless(sel.Name, resp, prompt, err)
	}
	choice := excerpt.FirstInteger(resp.Text)
	if choice < 0 || choice >= len(candidates) {
		choice = -1
	}
	value, err := json.Marshal(selection{Answer: excerpt.Clip(resp.Text, 200), Candidates: candidates, Choice: choice})
	if err != nil {
		return -1, st.fail(err)
	}
	picked := "none"
	if choice >= 0 {
		picked = candidates[choice]
	}
	d := journal.StepCompleted{Value: string(value), Prompt: prompt, Model: resp.Model, Usage: st.ex.origin(sel.Name, st.asked.Path, session.Placement{}, resp.Usage).Usage, Summary: "selects " + picked}
	if _, err := st.commitBeside(d); err != nil {
		return -1, err
	}
	return choice, nil
}

// recordUseless commits that the step failed with err: without an answer, or with one
// that it cannot use, whose usage counts.
func (st *step) recordUseless(agent string, resp *llm.Response, prompt blob.Digest, err error) error {
	d := journal.StepCompleted{Code: codeOf(err), Prompt: prompt}
	if resp != nil {
		d.Model, d.Usage = resp.Model, st.ex.origin(agent, st.asked.Path, session.Placement{}, resp.Usage).Usage
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
