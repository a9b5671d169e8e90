package api

import (
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// PublishDelta publishes a piece of model output to the clients that watch its run. It is
// not stored: without a listener it is lost. PublishDelta fits engine.Runtime.OnDelta: it
// does not block and returns no error.
func (c *Conn) PublishDelta(p engine.Delta) {
	out := messages.Delta{
		Run: p.Run, Session: p.Session.ID, Step: p.Path, Attempt: p.Attempt, Try: p.Try, N: p.N, Void: p.Void, Agent: p.Agent,
		Text: p.Text, Reasoning: p.Reasoning,
	}
	if p.Call != nil {
		out.Call = &messages.CallDelta{Index: p.Index, ID: p.Call.ID, Name: p.Call.Name, Args: p.Call.Args}
	}
	c.publishDelta(p.Session.Tenant, &out)
}

// PublishStart publishes that a step begins, as PublishDelta does. It fits
// engine.Runtime.OnStart.
func (c *Conn) PublishStart(p engine.Start) {
	c.publishDelta(p.Session.Tenant, &messages.Delta{
		Run: p.Run, Session: p.Session.ID, Step: p.Path, Attempt: p.Attempt,
		Start: &messages.StepStart{Kind: p.Kind, Name: p.Name, Did: lineage.Mask(p.Did)},
	})
}

func (c *Conn) publishDelta(t session.Tenant, d *messages.Delta) {
	data, err := messages.Encode(d)
	if err != nil {
		return // too large for a message: the chunk that is committed has it
	}
	_ = c.Conn.NC.Publish(messages.RunSubject(t, d.Run, messages.OnDelta), data)
}
