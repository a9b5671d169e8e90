package node

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/docker"
)

// containers returns the backend "docker", where the options name an image. A node whose
// engine cannot be used does not start.
func (n *Instance) containers(ctx context.Context, store string) (sandbox.Backend, error) {
	b := docker.New(&docker.Options{
		State: filepath.Join(store, "containers"), Image: n.o.SandboxImage, Runtime: n.o.SandboxRuntime, Warm: n.o.SandboxWarm, Logger: n.log,
	})
	if _, err := b.Probe(ctx); err != nil {
		return nil, fmt.Errorf("node: sandboxes of image %s: %w", n.o.SandboxImage, err)
	}
	return b, nil
}

// sweep has what former processes left of the sandboxes removed, now and while the node
// serves.
func (n *Instance) sweep(ctx context.Context, backends map[string]sandbox.Backend) error {
	for _, name := range slices.Sorted(maps.Keys(backends)) {
		s, ok := backends[name].(sandbox.Sweeper)
		if !ok {
			continue
		}
		if _, err := s.Sweep(ctx); err != nil {
			return fmt.Errorf("node: removing what former processes left of sandboxes of %q: %w", name, err)
		}
		n.sweepers = append(n.sweepers, s.Run)
	}
	return nil
}
