package engine

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/rules"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/form"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// gate selects the calls of an agent that need approval.
type gate struct {
	approve func(spec tool.Spec, args json.RawMessage) bool
	within  time.Duration
}

// openQuestion is a question to an approver about a call.
type openQuestion struct {
	c  *toolCall
	st *step
	w  journal.Wait
}

// approvals requests approval for all calls of the round that need it together, before
// any of them runs, and marks those that may not run. The operator's rules and the agent
// decide which calls need it, the stricter one of them.
func (r *round) approvals() error {
	var all []openQuestion
	for _, c := range r.calls {
		if c.refused != nil {
			continue
		}
		at := c.path.Child("approval")
		d := r.judged(c)
		if d.Verdict == rules.Refuse {
			c.refuse(refusedBy(d))
			continue
		}
		asks := d.Verdict == rules.Ask || r.recorded(at) || r.gate.approve != nil && r.gate.approve(c.spec, c.args)
		if !asks {
			continue
		}
		st := r.callStep(c, at, journal.StepAwait)
		w := journal.Wait{
			Detail: excerpt.Clip(cmp.Or(c.edited, c.Args), 4<<10), Kind: run.WaitApproval, Name: c.Name, Path: st.asked.Path, Title: "run " + c.Name + "?",
		}
		if d.Verdict == rules.Ask {
			w.Title += " " + excerpt.Clip(d.Reason, 200)
		}
		if len(c.spec.Schema) <= form.MaxSchema { // the call itself checks edits, too
			w.Edits, w.Schema = true, string(c.spec.Schema)
		}
		all = append(all, openQuestion{c, st, w})
	}
	return r.answered(all, r.applyDecision)
}

// callStep returns a step beside a call, in the log of the run.
func (r *round) callStep(c *toolCall, path run.Path, kind string) *step {
	return r.ex.newStep(r.ctx, r.ex.home, session.Session{}, journal.StepRequest{Path: path, Kind: kind, Name: c.Name, Input: blob.Sum([]byte(c.Args)).Short()})
}

// answered executes the steps of questions and applies each answer to its call.
// Unrecorded questions are asked together.
func (r *round) answered(all []openQuestion, apply func(*toolCall, journal.StepCompleted) error) (err error) {
	var waits []journal.Wait
	for _, g := range all {
		if err := g.st.decide(); err != nil {
			return err
		}
		if g.st.decision != journal.Replay {
			waits = append(waits, g.w)
		}
	}
	var inbox []journal.SignalReceived
	if len(waits) > 0 {
		if inbox, err = r.ex.signals.wait(r.ctx, waits, r.gate.within, false); err != nil {
			return err
		}
	}
	for _, g := range all {
		var d journal.StepCompleted
		if err := g.st.make(func() error { d = g.st.record.StepCompleted; return nil }, func() (_ journal.StepCompleted, err error) {
			d, err = answer(g.w, inbox)
			return d, err
		}); !g.st.recorded {
			return err
		}
		if err := apply(g.c, d); err != nil {
			return err
		}
	}
	return nil
}

// applyDecision applies an approver's decision to a call.
func (r *round) applyDecision(c *toolCall, d journal.StepCompleted) error {
	if d.Code != "" {
		c.refuse("this call was not approved in time; it did not run")
		return nil
	}
	var a flow.Approval
	err := decode(d, &a)
	switch {
	case err != nil:
		return err
	case !a.Approved:
		c.refuse("a person rejected this call: " + a.Reason)
	case len(a.Value) > 0:
		c.answered = true
		r.edit(c, string(a.Value))
		if d := r.judged(c); d.Verdict == rules.Refuse {
			c.refuse(refusedBy(d))
		}
	}
	return nil
}
