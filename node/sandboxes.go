package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/sandbox/egress"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
)

// sandboxes are the places where the tools of a node's runs work.
type sandboxes struct {
	o         *Options
	sweepers  []func(context.Context) error // remove leftover containers and pods
	isolation sandbox.Isolation             // the strongest on offer, "" without a backend
	programs  []string                      // programs for commands there, see sandbox.Programs
}

// open opens the backends, prepares the directories of sandboxes below dir, which is
// locked for this node, and removes the leftovers of former processes.
func (s *sandboxes) open(ctx context.Context, dir string) (w lease.Workspaces, err error) {
	boxes, work, forks := filepath.Join(dir, "boxes"), filepath.Join(dir, "work"), filepath.Join(dir, "forks")
	if _, err := local.Reap(ctx, boxes); err != nil {
		s.o.Logger.Warn("sandboxes of a former process are not all gone", "error", err)
	}
	for _, d := range []string{work, forks} {
		if err := errors.Join(lease.ClearForks(d), sandbox.RemoveTree(d)); err != nil {
			s.o.Logger.Warn("workspaces of a former process are not all gone", "error", err)
		}
	}
	w = lease.Workspaces{Dir: work, Sandbox: s.o.Sandbox.Limits, Network: s.o.Sandbox.Network}
	if w.Backends, err = s.backends(ctx, dir, boxes); err != nil {
		return w, err
	}
	if w.Forks, err = lease.NewForks(forks); err != nil {
		s.o.Logger.Info("each fork of a session copies its files", "because", err)
	}
	if w.Sandbox != (sandbox.Limits{}) {
		if err := s.enforceable(ctx, w); err != nil {
			return w, err
		}
	}
	if w.Egress, err = s.egress(); err != nil {
		return w, err
	}
	if s.o.Sandbox.Unsafe {
		w.MinIsolation = sandbox.IsolationProcess
	}
	s.isolation, s.programs = s.offersIsolation(ctx, w)
	return w, nil
}

// backends returns the backends by name. An idle node, which opens no sandboxes, asks no
// engine, server or cluster.
func (s *sandboxes) backends(ctx context.Context, dir, boxes string) (all map[string]sandbox.Backend, err error) {
	o := &s.o.Sandbox
	all = map[string]sandbox.Backend{"local": local.New(&local.Options{State: boxes})}
	if o.Docker.Image != "" && !s.o.Idle {
		if all["docker"], err = s.containers(ctx, dir); err != nil {
			return nil, err
		}
	}
	if o.OpenSandbox.URL != "" && !s.o.Idle {
		if all["opensandbox"], err = s.openSandbox(ctx); err != nil {
			return nil, err
		}
	}
	if o.Kubernetes.Image != "" && !s.o.Idle {
		if all["kubernetes"], err = s.pods(ctx); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Backends)) {
		all[name] = o.Backends[name]
		if s.o.Idle {
			continue
		}
		if err := s.sweep(ctx, all[name]); err != nil {
			return nil, fmt.Errorf("node: sandboxes of %q: %w", name, err)
		}
	}
	return all, nil
}

// enforceable rejects limits that no backend can enforce when it opens a sandbox. It
// logs the backends that cannot enforce some of them: a task that asks for such a
// backend is rejected there.
func (s *sandboxes) enforceable(ctx context.Context, w lease.Workspaces) error {
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
		s.o.Logger.Warn("some sandboxes of this node do not enforce the limits and are rejected", "hold", strings.Join(can, ", "), "refused", strings.Join(cannot, "; "))
	}
	return nil
}

// offersIsolation tries the backends and returns the strongest level that a
// session can get here, and the programs that commands find without an image.
func (s *sandboxes) offersIsolation(ctx context.Context, w lease.Workspaces) (best sandbox.Isolation, programs []string) {
	for _, name := range slices.Sorted(maps.Keys(w.Backends)) {
		c, err := w.Backends[name].Probe(ctx)
		switch {
		case err != nil:
			s.o.Logger.Warn("the limits enforced by the sandbox are unknown, so it is not offered", "backend", name, "error", err)
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

// ParsePrivate reads ranges of addresses with commas between them, as
// [Sandbox.Private] takes them.
func ParsePrivate(text string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for field := range strings.SplitSeq(text, ",") {
		if field = strings.TrimSpace(field); field == "" {
			continue
		}
		p, err := netip.ParsePrefix(field)
		if err != nil {
			return nil, fmt.Errorf("node: private range %q: write an address and the length of its prefix, such as 10.1.0.0/16", field)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// egress returns the options that the proxies of sandboxes share.
func (s *sandboxes) egress() (egress.Options, error) {
	secrets, err := egress.ParseSecrets(s.o.Sandbox.Secrets, s.o.Env)
	if err != nil {
		return egress.Options{}, fmt.Errorf("node: sandbox secrets: %w", err)
	}
	o := s.o.world
	o.Private, o.Secrets = s.o.Sandbox.Private, secrets
	return o, nil
}
