package translate

import (
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
)

// Task returns the journal's form of a task. Its session id, and that of ForkOf, are
// still the sender's: the node that accepts the task resolves names, generates an
// id if there is none, and finds the homes of the runs in After.
func Task(t *messages.Task, tenant session.Tenant, workflow string) (journal.Task, error) {
	if err := t.Check(); err != nil {
		return journal.Task{}, err
	}
	if err := session.ValidID("tenant", string(tenant)); err != nil {
		return journal.Task{}, &strict.Error{Message: "task", Problem: messages.Text(err), Remedy: "publish on rath.task.<tenant>.<user>.<workflow>"}
	}
	if err := session.ValidID("workflow", workflow); err != nil {
		return journal.Task{}, &strict.Error{Message: "task", Problem: messages.Text(err), Remedy: "publish on rath.task.<tenant>.<user>.<workflow>"}
	}
	out := journal.Task{
		ID: t.ID, After: journal.Predecessors(t.After, t.AfterAny), Workflow: workflow, Revision: t.Revision, Session: session.Key{Tenant: tenant, ID: session.ID(t.Session)},
		Input: t.Input, Model: t.Model, Tools: t.Tools, MCP: t.MCP, Deadline: journal.Moment(t.Deadline), NotBefore: journal.Moment(t.NotBefore), Resumes: t.Resumes, OnFailure: t.OnFailure, StartedBy: t.StartedBy, Tags: t.Tags, Priority: t.Priority, Class: t.Class,
		Budget: run.Budget{
			MicroUSD: t.Budget.MicroUSD, Steps: t.Budget.Steps, Tokens: t.Budget.Tokens, Time: time.Duration(t.Budget.TimeMS) * time.Millisecond,
		},
	}
	place, err := t.Sandbox.Normal()
	if err != nil {
		return journal.Task{}, err
	}
	out.Sandbox = journal.Sandbox{Allow: place.Allow, Backend: place.Backend, Image: place.Image, Limits: place.Limits, Network: place.Network}
	if out.Sandbox.Services, err = sandbox.ServicesText(place.Services); err != nil {
		return journal.Task{}, err
	}
	if t.Workspace != "" {
		d, err := blob.ParseDigest(t.Workspace)
		if err != nil {
			return journal.Task{}, err
		}
		out.Workspace = d
	}
	if t.ForkOf != "" {
		r, err := session.ParseRef(tenant, t.ForkOf)
		if err != nil {
			return journal.Task{}, err
		}
		out.ForkOf = &r
	}
	return out, nil
}

// TaskOf returns the body of a submission of a task. It keeps the id of a session that
// the task names. It omits StartedBy, because whoever submits the task again is no run, and
// After, because those runs have ended then.
func TaskOf(t journal.Task) messages.Task {
	out := messages.Task{
		Input: t.Input, ID: t.ID, Session: string(t.Session.ID), Model: t.Model, Tools: t.Tools, MCP: t.MCP, Deadline: t.Deadline, NotBefore: t.NotBefore,
		Revision: t.Revision, Sandbox: sandboxOf(t.Sandbox), Resumes: t.Resumes, OnFailure: t.OnFailure, Tags: t.Tags, Priority: t.Priority, Class: t.Class,
		Budget: messages.Budget{MicroUSD: t.Budget.MicroUSD, Steps: t.Budget.Steps, TimeMS: t.Budget.Time.Milliseconds(), Tokens: t.Budget.Tokens},
	}
	if !t.Workspace.IsZero() {
		out.Workspace = t.Workspace.String()
	}
	if t.ForkOf != nil {
		out.ForkOf = t.ForkOf.String()
	}
	return out
}

func sandboxOf(s journal.Sandbox) messages.Sandbox {
	services, _ := sandbox.ParseServices(s.Services) // validated on receipt
	return messages.Sandbox{Allow: s.Allow, Backend: s.Backend, Image: s.Image, Limits: s.Limits, Network: s.Network, Services: services}
}
