package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/internal/wire"
)

// AskTimeout bounds what is asked before a task is stored.
const AskTimeout = 3 * time.Second

// Offered reports a workflow that no node has ever offered here. Its task would
// be refused by the next node.
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

// OffersAll reports workflows of branches that no node offers. Without a node
// that could tell, the fan-out itself finds out.
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

// Offering counts the nodes that offer a workflow of a pool now. An offer outlives them.
func Offering(nodes []wire.Node, w *wire.Workflow) (n int) {
	for i := range nodes {
		o := &nodes[i]
		if !o.Dead && !o.Draining && o.Silent == 0 && slices.Contains(o.Pools, w.Pool) && slices.Contains(o.Offers, w.Name+"@"+w.Revision) {
			n++
		}
	}
	return n
}

// Deserted reports whether a workflow is on offer, and by no node that lives, as far as that
// can be asked: its task would wait.
func (s *System) Deserted(ctx context.Context, workflow string) bool {
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	all, err := s.Workflows(ctx)
	if err != nil {
		return false
	}
	nodes, err := s.Nodes(ctx)
	if err != nil {
		return false
	}
	known := false
	for i := range all {
		if all[i].Name == workflow {
			if known = true; Offering(nodes, &all[i]) > 0 {
				return false
			}
		}
	}
	return known
}

func unknownWorkflow(workflow, where string, names []string) error {
	return Fail(ExitNotFound, "unknown workflow %q: %s offers %s; workflows of your own are offered by your node, see \"init\"", workflow, where, view.Names(slices.Compact(names)))
}
