package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

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

// Compress is the Forward of a flow.Compressor.
func (p *place) Compress(ctx context.Context, c flow.Compressor, s session.Session) (session.Session, error) {
	ask := &call{agent: c.Name, prompt: c.Prompt, provider: &c.Provider, ask: c.Instruction}
	st, err := p.begin(ctx, journal.StepCompress, c.Name, s, false, "", ask.digest())
	if err != nil {
		return s, err
	}
	defer st.end()
	var base session.Session
	var text string
	var usage session.Usage
	if st.decision == journal.Replay {
		if err := rebuild(st.record); err != nil {
			return s, err
		}
		base, text, usage = st.record.Session, st.record.Value, st.record.Usage.Sub(st.record.Lost)
	} else {
		if err := st.ex.notArchived(st.ctx, st.asked.Path, st.s.Key()); err != nil {
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
			return s, st.recordUseless(c.Name, resp, prompt, err)
		}
		text = strings.TrimSpace(resp.Text)
		usage = st.ex.origin(c.Name, st.asked.Path, session.Placement{}, resp.Usage).Usage
		ack, err := st.commit(journal.StepCompleted{
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
	o := session.Origin{Agent: c.Name, Workflow: ex.reg.Name, Node: ex.rt.Node, Run: string(ex.id), Step: string(st.asked.Path), Usage: usage, Placement: base.Placement()}
	row := session.ChunkEvent(session.UserText(text).Of(o))
	out, err := ex.claim(ctx, ex.child(st.asked.Path), base.Root(), st.opening(session.OpenCompress, l), []session.Event{row}, &heldSession{parent: base.Key()})
	if err != nil {
		return s, st.fail(err)
	}
	return out, nil
}
