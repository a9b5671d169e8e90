package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/messages"
)

// AskTimeout bounds the requests to the system before a task is stored.
const AskTimeout = 3 * time.Second

// Offered returns an error for a workflow that no node has ever offered here. The next
// node would reject its task.
func (s *System) Offered(ctx context.Context, workflow string) error {
	all, err := s.Workflows(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, w := range all {
		if w.Name == workflow {
			return nil
		}
		names = append(names, w.Name)
	}
	return unknownWorkflow(workflow, s.Where, names)
}

// OffersAll returns an error for workflows of branches that no node offers. If no node
// answers, the fan-out itself checks them.
func (s *System) OffersAll(ctx context.Context, workflows []string) error {
	if len(workflows) == 0 {
		return nil
	}
	all, err := s.Workflows(ctx)
	if errors.Is(err, client.ErrNoAnswer) {
		return nil
	}
	if err != nil {
		return err
	}
	var names []string
	for _, w := range all {
		if !slices.Contains(names, w.Name) {
			names = append(names, w.Name)
		}
	}
	for _, w := range workflows {
		if !slices.Contains(names, w) {
			return unknownWorkflow(w, s.Where, names)
		}
	}
	return nil
}

// Offer is a pool's offer of a workflow. It outlives the pool's nodes.
type Offer struct {
	messages.Workflow
	Nodes int `json:"nodes"` // nodes with this offer now
}

// Offers returns the workflows on offer to the tenant, by name and pool.
func (s *System) Offers(ctx context.Context) ([]Offer, error) {
	all, err := s.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := s.Fleet.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Offer, len(all))
	for i := range all {
		o := &out[i]
		o.Workflow = all[i]
		for k := range nodes {
			n := &nodes[k]
			if !n.Dead && !n.Draining && n.Silent == 0 && slices.Contains(n.Pools, o.Pool) && slices.Contains(n.Offers, o.Name+"@"+o.Revision) {
				o.Nodes++
			}
		}
	}
	return out, nil
}

// Deserted reports whether a workflow is on offer, but by no live node, if the nodes
// can be asked: its task would wait.
func (s *System) Deserted(ctx context.Context, workflow string) bool {
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	all, err := s.Offers(ctx)
	if err != nil {
		return false
	}
	all = slices.DeleteFunc(all, func(o Offer) bool { return o.Name != workflow })
	return len(all) > 0 && !slices.ContainsFunc(all, func(o Offer) bool { return o.Nodes > 0 })
}

func unknownWorkflow(workflow, where string, names []string) error {
	return Fail(ExitNotFound, "unknown workflow %q: %s offers %s; your own node offers your own workflows, see \"init\"", workflow, where, view.Names(slices.Compact(names)))
}
