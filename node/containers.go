package node

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/docker"
)

// containers returns the backend "docker", where the options name an image. A node whose
// engine cannot be used does not start.
func (n *Instance) containers(ctx context.Context, store string) (sandbox.Backend, error) {
	o := n.o.Sandbox.Docker
	o.State, o.Logger = or(o.State, filepath.Join(store, "containers")), n.log
	b := docker.New(&o)
	if err := n.usable(ctx, b); err != nil {
		return nil, fmt.Errorf("node: sandboxes of image %s: %w", o.Image, err)
	}
	return b, nil
}

// usable probes a backend of the node. It removes the sandboxes of former processes
// first: they may use up all resources of the node's sandboxes.
func (n *Instance) usable(ctx context.Context, b sandbox.Backend) error {
	if err := n.sweep(ctx, b); err != nil {
		return err
	}
	_, err := b.Probe(ctx)
	return err
}

// sweep removes the sandboxes that former processes left in a backend, now and while
// the node serves.
func (n *Instance) sweep(ctx context.Context, b sandbox.Backend) error {
	s, ok := b.(sandbox.Sweeper)
	if !ok {
		return nil
	}
	if _, err := s.Sweep(ctx); err != nil {
		return fmt.Errorf("remove leftovers of former processes: %w", err)
	}
	n.sweepers = append(n.sweepers, s.Run)
	return nil
}
