package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/sandbox/egress"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// Workspaces configures sandboxes and their directories.
type Workspaces struct {
	// Dir is the host directory below which each lease gets one of its own.
	Dir string
	// Backends are the sandboxes that Session.To can name.
	Backends map[string]sandbox.Backend
	// Forks give forks of a session their directories; nil copies each.
	Forks *Forks
	// Limits bound each workspace; zero fields are the defaults.
	Limits workspace.Limits
	// MinIsolation is the weakest isolation accepted; "" is the kernel's.
	MinIsolation sandbox.Isolation
	// Sandbox bounds the resources of each sandbox. Without a limit of disk the limit is
	// scratch workspaces, if the backend can enforce one.
	Sandbox sandbox.Limits
	// Network is the widest access that a task can request; "" is any list of hosts.
	// Egress has the options shared by the proxies of sandboxes with a list.
	Network sandbox.Network
	Egress  egress.Options
}

// scratch is the disk limit of a sandbox as a multiple of the largest workspace: commands
// need more space temporarily than they leave used.
const scratch = 2

// limits returns the limits of a sandbox of a backend with these capabilities.
func (w *Workspaces) limits(can sandbox.Capabilities) sandbox.Limits {
	l := w.Sandbox
	if l.Disk == 0 && slices.Contains(can.Limits, sandbox.LimitDisk) {
		l.Disk = scratch * cmp.Or(w.Limits.Bytes, workspace.DefaultBytes)
	}
	return l
}

// ErrNoSandbox: a session was sent to no sandbox.
var ErrNoSandbox = errors.New("the session has no sandbox")

// Backend returns the sandbox backend that a session was sent to. ErrNoSandbox: to none.
func (w *Workspaces) Backend(p session.Placement) (sandbox.Backend, error) {
	if p.Backend == "" {
		return nil, fmt.Errorf(`flow: %w: send it to one with s.To("local", dir), or give the task a workspace`, ErrNoSandbox)
	}
	b, ok := w.Backends[p.Backend]
	if !ok {
		names := slices.Sorted(maps.Keys(w.Backends))
		remedy := ""
		switch p.Backend {
		case "docker":
			remedy = "; it offers containers where RATH_SANDBOX_IMAGE names their image"
		case "opensandbox":
			remedy = "; it offers sandboxes of a server where RATH_SANDBOX_OPENSANDBOX_URL names it"
		}
		return nil, fmt.Errorf("flow: this node has no sandbox %q, it has %s%s", p.Backend, strings.Join(names, ", "), remedy)
	}
	return b, nil
}

// FirstHead fills in the terms of the sandbox and the head of the directory that the
// session was sent to.
func (w *Workspaces) FirstHead(ctx context.Context, b blob.Store, p *session.Placement, epoch uint64) error {
	backend, err := w.Backend(*p)
	if err != nil {
		return err
	}
	if err := w.terms(ctx, backend, p, epoch); err != nil {
		return err
	}
	if !p.Head.IsZero() {
		return nil
	}
	dir := p.Spec
	if dir == "" {
		if dir, err = os.MkdirTemp("", "rath-empty-"); err != nil {
			return fmt.Errorf("flow: make an empty workspace: %w", err)
		}
		defer os.Remove(dir)
	}
	if p.Head, err = workspace.Snapshot(ctx, b, dir, blob.Digest{}, w.Limits); err != nil {
		return fmt.Errorf("flow: copy %s: %w", dir, err)
	}
	return nil
}

// terms fills in the terms of a sandbox of a session that was sent to a backend: the
// request of the task within the limits of the node, and the isolation that the backend
// reaches.
func (w *Workspaces) terms(ctx context.Context, b sandbox.Backend, p *session.Placement, epoch uint64) error {
	can, err := b.Probe(ctx)
	if err != nil {
		return fmt.Errorf("flow: probe sandbox %s: %w", p.Backend, err)
	}
	asked, err := sandbox.ParseLimits(p.Limits)
	if err != nil {
		return fmt.Errorf("flow: sandbox %s: %w", p.Backend, err)
	}
	limits, err := asked.Within(w.limits(can))
	if err != nil {
		return fmt.Errorf("flow: sandbox %s: %w", p.Backend, err)
	}
	network, err := sandbox.ParseNetwork(p.Network)
	if err != nil {
		return fmt.Errorf("flow: sandbox %s: %w", p.Backend, err)
	}
	if err := network.Within(w.Network); err != nil {
		return fmt.Errorf("flow: sandbox %s: %w", p.Backend, err)
	}
	services, err := sandbox.ParseServices(p.Services)
	if err != nil {
		return fmt.Errorf("flow: sandbox %s: %w", p.Backend, err)
	}
	asks, err := sandbox.ServicesText(services)
	if err != nil {
		return fmt.Errorf("flow: sandbox %s: %w", p.Backend, err)
	}
	held, err := b.Resolve(ctx, sandbox.Spec{
		MinIsolation: w.MinIsolation, Limits: limits, Image: p.Image, Network: network, Services: len(services) > 0,
	})
	if err != nil {
		return fmt.Errorf("flow: sandbox %s: %w", p.Backend, err)
	}
	p.Epoch, p.Isolation, p.Image = epoch, string(held.Isolation), held.Image
	p.Limits, p.Network, p.Services = held.Limits.String(), string(held.Network), asks
	return nil
}

// spec returns the specification of a sandbox under the terms of p. Weaker terms are
// rejected, because the terms decided the replay of the session's calls after a crash.
// Limits are not recorded promises: those of this node may be lower.
func (w *Workspaces) spec(ctx context.Context, b sandbox.Backend, p session.Placement, epoch uint64) (sandbox.Spec, error) {
	s := sandbox.Spec{Epoch: epoch, MinIsolation: w.MinIsolation, Image: p.Image, Services: p.Services != ""}
	if held := sandbox.Isolation(p.Isolation); s.MinIsolation == "" || held.AtLeast(s.MinIsolation) {
		s.MinIsolation = held
	}
	can, err := b.Probe(ctx)
	if err != nil {
		return s, fmt.Errorf("flow: probe sandbox %s: %w", p.Backend, err)
	}
	if s.Limits, err = sandbox.ParseLimits(p.Limits); err != nil {
		return s, fmt.Errorf("flow: sandbox %s: %w", p.Backend, err)
	}
	s.Limits = s.Limits.AtMost(w.limits(can))
	if s.Network, err = sandbox.ParseNetwork(p.Network); err == nil && slices.Index(can.Networks, string(s.Network)) != 0 { // the least that there is
		// The log may be of a node that allows more, or of who wrote an archive.
		err = s.Network.Within(w.Network)
	}
	if err != nil {
		return s, fmt.Errorf("flow: sandbox %s: %w", p.Backend, err)
	}
	return s, nil
}

// Describe describes the other terms of a sandbox to readers.
func Describe(p session.Placement) string {
	var text strings.Builder
	if p.Image != "" {
		text.WriteString(", image " + excerpt.Clip(p.Image, 24))
	}
	if p.Network != "" && p.Network != string(sandbox.NetworkNone) {
		text.WriteString(", network " + excerpt.Clip(p.Network, 80))
	}
	if list, err := sandbox.ParseServices(p.Services); err == nil && len(list) > 0 {
		text.WriteString(", services")
		for i, s := range list {
			text.WriteString(strings.Repeat(",", min(i, 1)) + " " + s.Name)
		}
	}
	return text.String()
}
