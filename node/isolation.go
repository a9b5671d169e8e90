package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/sandbox"
)

// enforceable rejects limits that no backend can enforce when it opens a sandbox. It
// logs the backends that cannot enforce some of them: a task that asks for such a
// backend is rejected there.
func (n *Instance) enforceable(ctx context.Context, w lease.Workspaces) error {
	var can, cannot []string
	for _, name := range slices.Sorted(maps.Keys(w.Backends)) {
		c, err := w.Backends[name].Probe(ctx)
		if err != nil {
			return fmt.Errorf("node: probe sandbox %s: %w", name, err)
		}
		if missing := c.Unenforced(w.Sandbox); len(missing) > 0 {
			cannot = append(cannot, fmt.Sprintf("%s cannot limit %s", name, strings.Join(missing, ", ")))
		} else {
			can = append(can, name)
		}
	}
	switch {
	case len(can) == 0:
		return fmt.Errorf("node: %w: no sandbox here enforces the limits: %s; omit the unsupported ones, or give the node cgroups (systemd: Delegate=yes)",
			sandbox.ErrUnsupported, strings.Join(cannot, "; "))
	case len(cannot) > 0:
		n.log.Warn("some sandboxes of this node do not enforce the limits and are rejected", "hold", strings.Join(can, ", "), "refused", strings.Join(cannot, "; "))
	}
	return nil
}

// offersIsolation tries the backends and returns the strongest level that a
// session can get here, and the programs that commands find without an image.
func (n *Instance) offersIsolation(ctx context.Context, w lease.Workspaces) (best sandbox.Isolation, programs []string) {
	for _, name := range slices.Sorted(maps.Keys(w.Backends)) {
		c, err := w.Backends[name].Probe(ctx)
		switch {
		case err != nil:
			n.log.Warn("the limits enforced by the sandbox are unknown, so it is not offered", "backend", name, "error", err)
		case !c.Isolation.AtLeast(cmp.Or(w.MinIsolation, sandbox.IsolationKernel)): // it is rejected
		case best == "" || c.Isolation.AtLeast(best):
			best = c.Isolation
		}
		if len(c.Programs) > 0 {
			programs = c.Programs
		}
	}
	return best, programs
}
