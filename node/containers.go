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
	b := docker.New(&docker.Options{
		State: filepath.Join(store, "containers"), Image: n.o.SandboxImage, Runtime: n.o.SandboxRuntime, Warm: n.o.SandboxWarm, Logger: n.log,
	})
	if _, err := b.Sweep(ctx); err != nil {
		return nil, fmt.Errorf("node: sandboxes of image %s: %w", n.o.SandboxImage, err)
	}
	if _, err := b.Probe(ctx); err != nil {
		return nil, fmt.Errorf("node: sandboxes of image %s: %w", n.o.SandboxImage, err)
	}
	n.sweepers = append(n.sweepers, b.Run)
	return b, nil
}
