package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// asks returns a handler that answers with the reply to a query about the whole fleet.
func asks(verb string) func(ctx context.Context, c *call) (any, error) {
	return func(ctx context.Context, c *call) (any, error) { return c.ask(ctx, verb, wire.Query{}) }
}

// listWorkflows answers with the workflows on offer, to a narrow token with its own.
func listWorkflows(ctx context.Context, c *call) (any, error) {
	if !c.caller.Narrow() {
		return c.ask(ctx, messages.QueryWorkflows, wire.Query{})
	}
	return c.workflows(ctx, func(w *messages.Workflow) bool { return slices.Contains(c.caller.Only, w.Name) })
}

// showWorkflow answers with the offers of one workflow.
func showWorkflow(ctx context.Context, c *call) (any, error) {
	name := c.path("workflow")
	found, err := c.workflows(ctx, func(w *messages.Workflow) bool {
		return w.Name == name && (!c.caller.Narrow() || slices.Contains(c.caller.Only, name))
	})
	if err == nil && len(found.Workflows) == 0 {
		err = dispatch.CodeUnknownWorkflow.Err(fmt.Sprintf("workflow %q: no node offers it; list those on offer with GET %s/workflows", name, prefix))
	}
	return found, err
}

func (c *call) workflows(ctx context.Context, which func(*messages.Workflow) bool) (wire.Workflows, error) {
	all, err := c.client().Workflows(ctx)
	return wire.Workflows{Workflows: slices.DeleteFunc(all, func(w messages.Workflow) bool { return !which(&w) })}, err
}

func showNode(ctx context.Context, c *call) (any, error) {
	return c.client().Fleet.Node(ctx, c.path("node"))
}

// drain drains a node that runs no other tenant's work.
func drain(ctx context.Context, c *call) (any, error) {
	n, err := c.client().Fleet.Node(ctx, c.path("node"))
	if err != nil {
		return nil, err
	}
	err = c.client().Fleet.Drain(ctx, n.Incarnation)
	if errors.Is(err, session.ErrTenant) {
		err = &access.Denied{Verb: messages.VerbNodeDrain, Role: c.caller.Role}
	}
	return done(err)
}

// models are the default models of the nodes.
type models struct {
	Models []model `json:"models"`
}

type model struct {
	Model string `json:"model"`
	// Nodes are the names of the nodes whose agents use it by default.
	Nodes []string `json:"nodes"`
	// Errors are the reasons why it cannot be used, by node.
	Errors map[string]string `json:"errors,omitempty"`
}

func listModels(ctx context.Context, c *call) (any, error) {
	nodes, err := c.client().Fleet.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	out := models{Models: []model{}}
	for _, n := range nodes {
		if n.Dead || n.Model == "" && n.ModelError == "" {
			continue
		}
		i := slices.IndexFunc(out.Models, func(m model) bool { return m.Model == n.Model })
		if i < 0 {
			i, out.Models = len(out.Models), append(out.Models, model{Model: n.Model})
		}
		m := &out.Models[i]
		m.Nodes = append(m.Nodes, n.Name)
		if n.ModelError != "" {
			if m.Errors == nil {
				m.Errors = map[string]string{}
			}
			m.Errors[n.Name] = n.ModelError
		}
	}
	slices.SortFunc(out.Models, func(a, b model) int { return strings.Compare(a.Model, b.Model) })
	return out, nil
}

func listLetters(ctx context.Context, c *call) (any, error) {
	q, err := c.page()
	if err != nil {
		return nil, err
	}
	return c.ask(ctx, messages.QueryLetters, q)
}

// letter returns the sequence of the dead letter in the address.
func (c *call) letter() (uint64, error) {
	at, err := strconv.ParseUint(c.path("letter"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("dead letter %q: %w; list them with GET %s/dead-letters", c.path("letter"), session.ErrNotFound, prefix)
	}
	return at, nil
}

func showLetter(ctx context.Context, c *call) (any, error) {
	at, err := c.letter()
	if err != nil {
		return nil, err
	}
	return c.client().Fleet.DeadLetter(ctx, at)
}

// retryLetter submits the task of a dead letter again.
func retryLetter(ctx context.Context, c *call) (any, error) {
	at, d, err := c.decideLetter()
	if err != nil {
		return nil, err
	}
	id, err := c.client().Fleet.RetryDeadLetter(ctx, at, d)
	return named{id}, err
}

func dropLetter(ctx context.Context, c *call) (any, error) {
	at, d, err := c.decideLetter()
	if err != nil {
		return nil, err
	}
	return done(c.client().Fleet.DropDeadLetter(ctx, at, d))
}

// decideLetter reads a decision about a dead letter: who decides, and why.
func (c *call) decideLetter() (at uint64, d messages.Control, err error) {
	if at, err = c.letter(); err != nil {
		return at, d, err
	}
	if d, err = messages.DecodeControl(c.body); err == nil {
		err = d.Check(messages.VerbCancel) // which has the same fields
	}
	if err == nil && d.Submitted {
		err = &strict.Error{Message: "dead letter", Field: "submitted", Problem: "it is no part of this request", Remedy: "leave it out"}
	}
	return at, d, err
}

// repaired is the outcome of a repair of the lineage.
type repaired struct {
	Partitions []messages.Repaired `json:"partitions"`
}

func repair(ctx context.Context, c *call) (any, error) {
	all, err := c.client().Lineage.Repair(ctx)
	return repaired{all}, err
}
