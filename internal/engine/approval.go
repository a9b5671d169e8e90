package engine

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/excerpt"
	"github.com/rathcluster/rath/internal/form"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/tool"
)

// gate is which calls of an agent a person has to approve.
type gate struct {
	approve func(spec tool.Spec, args json.RawMessage) bool
	within  time.Duration
}

// question is a call that a person has to approve.
type question struct {
	c  *toolCall
	st *step
	w  journal.Wait
}

// approvals asks at once for all calls of the round that need approval, before any of
// them runs, and marks those that may not run.
func (r *round) approvals() error {
	if r.gate.approve == nil {
		return nil
	}
	var open []question
	for _, c := range r.calls {
		if c.refused != nil || !r.gate.approve(c.spec, c.args) {
			continue
		}
		g := question{c: c, st: &step{ex: r.ex, ctx: r.ctx, log: r.ex.home, began: time.Now()}}
		g.st.asked = journal.StepRequest{Path: c.path.Child("approval"), Kind: journal.StepAwait, Name: c.Name, Input: blob.Sum([]byte(c.Args)).Short()}
		if err := g.st.decide(); err != nil {
			return err
		}
		if g.st.decision == journal.Replay {
			if err := r.applyDecision(c, g.st.record.StepCompleted); err != nil {
				return err
			}
			continue
		}
		g.w = journal.Wait{
			Detail: excerpt.Clip(cmp.Or(c.edited, c.Args), 4<<10), Kind: run.WaitApproval, Name: c.Name, Path: g.st.asked.Path, Title: "run " + c.Name + "?",
		}
		if len(c.spec.Schema) <= form.MaxSchema { // the call itself checks what is edited, too
			g.w.Edits, g.w.Schema = true, string(c.spec.Schema)
		}
		open = append(open, g)
	}
	if len(open) == 0 {
		return nil
	}
	waits := make([]journal.Wait, len(open))
	for i, g := range open {
		waits[i] = g.w
	}
	inbox, err := r.ex.wait(r.ctx, waits, r.gate.within)
	if err != nil {
		return err
	}
	for _, g := range open {
		d, err := answer(g.w, inbox)
		if err != nil {
			return err
		}
		if _, err := g.st.commit(d); err != nil {
			return err
		}
		r.ex.take(0, g.w.Path)
		if err := r.applyDecision(g.c, d); err != nil {
			return err
		}
	}
	return nil
}

// applyDecision applies a person's decision to a call.
func (r *round) applyDecision(c *toolCall, d journal.StepCompleted) error {
	reject := func(message string) {
		out := tool.ErrorOutcome(&tool.Failure{Kind: tool.Rejected, Message: message, Detail: c.Name})
		c.refused = &out
	}
	if d.Code != "" {
		reject("this call was not approved in time; it did not run")
		return nil
	}
	var a flow.Approval
	err := decode(d, &a)
	switch {
	case err != nil:
		return err
	case !a.Approved:
		reject("a person rejected this call: " + a.Reason)
	case len(a.Value) > 0:
		c.answered = true
		r.edit(c, string(a.Value))
	}
	return nil
}
