package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/excerpt"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// asksForSandbox reports whether the task of the run asks for a sandbox of its own. A run
// that cannot have it fails, because what it would do instead was not asked for.
func (ex *Execution) asksForSandbox() bool {
	t := ex.task
	if ex.levels.root != nil {
		t = ex.levels.root
	}
	ask := t.Sandbox
	ask.Allow = ""
	return ask != (journal.Sandbox{})
}

// placedAs returns the session that a run of a task begins with: sent to where the task
// asks for, with the files that it has or those that the task brings. It is a pending
// edit, the same in each execution. A session that the task made is there already.
func placedAs(t *journal.Task, base session.Session) session.Session {
	p, was := t.Place(base.Placement()), base.Placement()
	if p == was {
		return base
	}
	return base.Placed(p)
}

// backend returns the sandbox backend that a session was sent to.
func (ex *Execution) backend(p session.Placement) (sandbox.Backend, error) {
	if p.Backend == "" {
		return nil, errors.New(`flow: the session has no sandbox: send it to one with s.To("local", dir), or give the task a workspace`)
	}
	b, ok := ex.rt.Workspaces.Backends[p.Backend]
	if !ok {
		names := slices.Sorted(maps.Keys(ex.rt.Workspaces.Backends))
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

// placed makes sure that a session which was sent somewhere has a workspace:
// the step takes the copy of the directory, if one was named, and commits the
// first head.
func (ex *Execution) placed(ctx context.Context, path run.Path, s session.Session) (session.Session, error) {
	p := s.Placement()
	if p.Backend == "" || p.Isolation != "" {
		return s, nil
	}
	st, err := ex.substep(ctx, s.Key(), s, journal.StepRequest{
		Path: path.Child("open"), Kind: journal.StepOpen, Name: p.Backend, Input: inputDigest(s, []string{p.Spec}),
	})
	if err != nil {
		return s, err
	}
	st.began = time.Now()
	st.fly(Opens, "")
	defer st.flight.end()
	if err := st.make(nil, func() (d journal.StepCompleted, err error) {
		if err := ex.firstHead(ctx, &p); err != nil {
			d.Summary = "is refused a sandbox: " + excerpt.Clip(strings.TrimPrefix(err.Error(), "flow: "), 160)
			return d, came(err)
		}
		st.content = []session.Event{session.PlacedEvent(p)}
		d.HeadAfter, d.Summary = p.Head, "opens "+p.Backend+", "+p.Isolation+opensWith(p)
		return d, nil
	}); err != nil {
		return s, err
	}
	ex.leases.opened(s.Key(), st.after.Placement().Head)
	return st.after, nil
}

// opened is a step whose session is committed and was sent to where it has its sandbox.
type opened struct {
	*scope
	made   journal.StepRequest // with its path
	s      session.Session
	boxErr error // why the session has no sandbox: tools that need it tell the model
}

// open enters the step that made names, with s as its session. The caller must release it.
func (p *place) open(ctx context.Context, made journal.StepRequest, s session.Session) (*opened, error) {
	sc, path, err := p.enter(made)
	if err != nil {
		return nil, err
	}
	made.Path = path
	o := &opened{scope: sc, made: made}
	if o.s, err = sc.ex.own(ctx, path, s, true); err == nil {
		o.s, err = sc.ex.flush(ctx, path, o.s)
	}
	if err == nil {
		o.s, o.boxErr = sc.ex.placed(ctx, path, o.s)
		if o.boxErr != nil && (run.IsControl(o.boxErr) || sc.ex.asksForSandbox()) {
			err = o.boxErr
		}
	}
	if err != nil {
		sc.release()
		return nil, sc.ex.failed(err)
	}
	return o, nil
}

// firstHead fills in what will hold in the sandbox and the head of the directory that
// the session was sent to.
func (ex *Execution) firstHead(ctx context.Context, p *session.Placement) error {
	b, err := ex.backend(*p)
	if err != nil {
		return err
	}
	if err := ex.terms(ctx, b, p); err != nil {
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
	if p.Head, err = workspace.Snapshot(ctx, ex.blobs(), dir, blob.Digest{}, ex.rt.Workspaces.Limits); err != nil {
		return fmt.Errorf("flow: copy %s: %w", dir, err)
	}
	return nil
}

// terms fills in what holds in a sandbox of a session that was sent to a backend: what
// was asked for, within what the node allows, and what the backend makes of it.
func (ex *Execution) terms(ctx context.Context, b sandbox.Backend, p *session.Placement) error {
	can, err := b.Probe(ctx)
	if err != nil {
		return fmt.Errorf("flow: probe sandbox %s: %w", p.Backend, err)
	}
	asked, err := sandbox.ParseLimits(p.Limits)
	if err != nil {
		return fmt.Errorf("flow: sandbox %s: %w", p.Backend, err)
	}
	limits, err := asked.Within(ex.rt.Workspaces.limits(can))
	if err != nil {
		return fmt.Errorf("flow: sandbox %s: %w", p.Backend, err)
	}
	network, err := sandbox.ParseNetwork(p.Network)
	if err != nil {
		return fmt.Errorf("flow: sandbox %s: %w", p.Backend, err)
	}
	if err := network.Within(ex.rt.Workspaces.Network); err != nil {
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
		MinIsolation: ex.rt.Workspaces.MinIsolation, Limits: limits, Image: p.Image, Network: network, Services: len(services) > 0,
	})
	if err != nil {
		return fmt.Errorf("flow: sandbox %s: %w", p.Backend, err)
	}
	p.Epoch, p.Isolation, p.Image = ex.granted.Epoch, string(held.Isolation), held.Image
	p.Limits, p.Network, p.Services = held.Limits.String(), string(held.Network), asks
	return nil
}

// spec is what to open for a session of which p holds. A sandbox that would hold less
// is refused, because what a crash may do with the session's calls was decided by it.
// Limits are not promises to the log: those of this node may be lower.
func (ex *Execution) spec(ctx context.Context, b sandbox.Backend, p session.Placement) (sandbox.Spec, error) {
	s := sandbox.Spec{Epoch: ex.granted.Epoch, MinIsolation: ex.rt.Workspaces.MinIsolation, Image: p.Image, Services: p.Services != ""}
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
	s.Limits = s.Limits.AtMost(ex.rt.Workspaces.limits(can))
	if s.Network, err = sandbox.ParseNetwork(p.Network); err == nil && slices.Index(can.Networks, string(s.Network)) != 0 { // the least that there is
		// The log may be of a node that allows more, or of who wrote an archive.
		err = s.Network.Within(ex.rt.Workspaces.Network)
	}
	if err != nil {
		return s, fmt.Errorf("flow: sandbox %s: %w", p.Backend, err)
	}
	return s, nil
}

// opensWith says what else holds in a sandbox, for people.
func opensWith(p session.Placement) string {
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

func (ex *Execution) blobs() blob.Store { return ex.rt.Blobs(ex.home.Tenant) }
