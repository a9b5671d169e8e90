package node

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/internal/models"
	"github.com/rathcluster/rath/internal/models/limiter"
	"github.com/rathcluster/rath/internal/workflows/demo"
	"github.com/rathcluster/rath/internal/workflows/notify"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
)

// catalog holds a node's models and their limits.
type catalog struct {
	list   *models.List
	limits *limiter.Set
	usual  string // the name of the default model
	fault  string // why it cannot be asked
}

// open reads the node's list and creates its models. It returns a function that
// resolves a provider to its choices, nil for a program's own models, which have no
// list.
func (c *catalog) open(o *Options) (choices func(llm.Provider) ([]chain.Choice, error), err error) {
	if o.Models.List != "" {
		if c.list, err = models.Read(o.Models.List); err != nil {
			return nil, err
		}
	}
	if o.Models.Source == nil {
		o.Models.Source, err = modelsOf(o.Env, o.Models.Default, c.list)
	} else if c.list == nil {
		return nil, nil
	}
	return c.choices, err
}

// memory returns the model that makes the vectors of notes, and the name of its vectors,
// see models.Model.Vectors; both are empty without one.
func (c *catalog) memory() (model, vectors string) {
	if c.list == nil || c.list.Memory == "" {
		return "", ""
	}
	return c.list.Memory, c.list.Lookup(c.list.Memory).Vectors()
}

// choices returns the models for p: a model of the list, unless p names a server or a
// kind itself.
func (c *catalog) choices(p llm.Provider) ([]chain.Choice, error) {
	own := chain.Choice{Provider: p}
	switch {
	case p.Kind == EchoModel, p.Kind == demo.Kind, p.Kind == "" && p.BaseURL == "" && p.Model == EchoModel && c.list.Lookup(EchoModel) == nil:
		own.Cost = models.Free
		return []chain.Choice{own}, nil
	case p.Kind != "", p.BaseURL != "", c.list == nil:
		return []chain.Choice{own}, nil
	}
	list, err := c.list.Chain(p.Model)
	if err != nil {
		return nil, err
	}
	var all []chain.Choice
	for _, m := range list {
		limiter := c.limiter(m)
		for _, at := range m.Replicas() {
			one := chain.Choice{Name: m.Name, Provider: at.Provider(p), Cost: m.Cost, Context: m.Context, NoTools: !slices.Contains(m.Can, models.CanTools), Embeds: m.Embeds(), Images: slices.Contains(m.Can, models.CanImages), Limiter: limiter, Retries: chain.Retries(m.Retries)}
			if m.Prices != nil {
				one.Price, one.Prices = m.Prices.Cost, m.Prices.Date
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// limiter returns the limits of a model and of its key.
func (c *catalog) limiter(m *models.Model) limiter.Limiter {
	// The same order for all calls, which hold one while they wait for the next.
	of := []models.KeyLimit{{Key: "model " + m.Name, Limit: m.Limit}}
	if k, ok := c.list.KeyLimit(m); ok {
		of = append(of, models.KeyLimit{Key: "key " + k.Key, Limit: k.Limit})
	}
	var minutes []*limiter.Limit
	for _, o := range of {
		if a := (limiter.Amount{Requests: o.Requests, Tokens: o.Tokens}); a != (limiter.Amount{}) {
			minutes = append(minutes, c.limits.Limit(o.Key, a))
		}
	}
	all := limiter.All(minutes...)
	for _, o := range slices.Backward(of) {
		if o.Concurrency > 0 {
			all = c.limits.Concurrency(o.Key, o.Concurrency).Then(all)
		}
	}
	return all
}

// check rejects a task whose demands this node cannot meet: a model that is not in the
// list, or a budget of money with a model without prices. The run itself checks an
// agent's own model when it gets there.
func (n *Instance) check(t journal.Task) error {
	if t.Workflow == notify.Workflow && t.By != messages.UserOperator {
		return &strict.Error{Message: "task", Problem: "workflow " + t.Workflow + " is for the notifications of nodes", Remedy: "write a rule into the list of -targets"}
	}
	_, offered := n.offer.registry.Lookup(t.Workflow)
	for i, name := range t.MCP {
		if _, err := n.tools.servers.Lookup(name); err != nil && offered {
			return &strict.Error{Message: "task", Field: fmt.Sprintf("mcp[%d]", i), Problem: err.Error()}
		}
	}
	if !offered || n.runtime.Choices == nil || t.Workflow != agentWorkflow && t.Model == "" {
		return nil
	}
	bad := func(field, problem, remedy string) error {
		return &strict.Error{Message: "task", Field: field, Problem: problem, Remedy: remedy}
	}
	all, err := n.runtime.Choices(llm.Provider{Model: cmp.Or(t.Model, n.o.Models.Default)})
	switch {
	case err != nil && t.Model != "":
		return bad("model", messages.Text(err), "")
	case err == nil && all[0].Embeds:
		return bad("model", "model "+all[0].String()+" only embeds texts", "name another model of the list")
	case err != nil || t.Budget.MicroUSD == 0:
		return nil // the run reports a wrong default of the node
	}
	for i := range all {
		if all[i].Cost == "" {
			return bad("budget.micro_usd", "the cost of calls of model "+cmp.Or(all[i].String(), "(none)")+" is unknown, so the budget could not be kept",
				"set budget.tokens instead, or have prices, free or states_cost given to the model in the node's list of models")
		}
	}
	return nil
}

// newLimits creates the limits of the models that this node asks. All nodes share them,
// except nodes that are bound to a tenant: these store nothing and keep limits of their
// own.
func newLimits(l *link, f *fleet) *limiter.Set {
	var store limiter.Store = &limiter.Memory{}
	if l.bound == nil {
		store = l.conn.Dispatch.Ledgers()
	}
	limits := limiter.NewSet(store, l.incarnation, l.o.Logger)
	if known := f.known(); known != nil {
		limits.Dead = func(incarnation string) bool {
			alive, certain := known(incarnation)
			return certain && !alive
		}
	}
	return limits
}
