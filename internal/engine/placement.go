package engine

import (
	"context"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// asksForSandbox reports whether the task of the run requests a sandbox of its own. A run
// that cannot have it fails, because the task did not request any other.
func (a *around) asksForSandbox() bool {
	t := a.ex.task
	if a.ex.levels.root != nil {
		t = a.ex.levels.root
	}
	ask := t.Sandbox
	ask.Allow = ""
	return ask != (journal.Sandbox{})
}

// placedAs returns the session with which a run of a task begins: placed as the task
// requests, with its present files or those that the task brings. The placement is a
// pending edit, the same in each execution. A session that the task made has it already.
func placedAs(t *journal.Task, base session.Session) session.Session {
	p, was := t.Place(base.Placement()), base.Placement()
	if p == was {
		return base
	}
	return base.Placed(p)
}

// placed ensures that a session with a backend has a workspace: the step copies the
// directory, if one was named, and commits the first head.
func (b *boxes) placed(ctx context.Context, path run.Path, s session.Session) (session.Session, error) {
	ex := b.ex
	p := s.Placement()
	if p.Backend == "" || p.Isolation != "" {
		return s, nil
	}
	st, err := ex.substep(ctx, s.Key(), s, journal.StepRequest{
		Path: path.Child("open"), Kind: journal.StepOpen, Name: p.Backend, Input: ex.sessions.inputDigest(s, []string{p.Spec}),
	})
	if err != nil {
		return s, err
	}
	st.began = time.Now()
	st.fly(live.Opens, "")
	defer st.flight.End()
	if err := st.make(nil, func() (d journal.StepCompleted, err error) {
		if err := ex.rt.Workspaces.FirstHead(ctx, b.blobs(), &p, ex.granted.Epoch); err != nil {
			d.Summary = "is refused a sandbox: " + excerpt.Clip(strings.TrimPrefix(err.Error(), "flow: "), 160)
			return d, came(err)
		}
		st.content = []session.Event{session.PlacedEvent(p)}
		d.HeadAfter, d.Summary = p.Head, "opens "+p.Backend+", "+p.Isolation+lease.Describe(p)
		return d, nil
	}); err != nil {
		return s, err
	}
	ex.leases.Opened(s.Key(), st.after.Placement().Head)
	return st.after, nil
}

// opened is a step whose session is committed and has a sandbox backend.
type opened struct {
	*scope
	made   journal.StepRequest // with its path
	s      session.Session
	boxErr error // why the session has no sandbox: tools that need it report this to the model
}

// openStep enters the step that made names, with s as its session. The caller must release it.
func openStep(ctx context.Context, p *place, made journal.StepRequest, s session.Session) (*opened, error) {
	sc, path, err := enter(&p.spot, made)
	if err != nil {
		return nil, err
	}
	made.Path = path
	o := &opened{scope: sc, made: made}
	if o.s, err = sc.ex.forks.own(ctx, path, s, true); err == nil {
		o.s, err = sc.ex.joins.flush(ctx, path, o.s)
	}
	if err == nil {
		o.s, o.boxErr = sc.ex.boxes.placed(ctx, path, o.s)
		if o.boxErr != nil && (run.IsControl(o.boxErr) || sc.ex.around.asksForSandbox()) {
			err = o.boxErr
		}
	}
	if err != nil {
		sc.release()
		return nil, sc.ex.failed(err)
	}
	return o, nil
}

func (b *boxes) blobs() blob.Store { return b.ex.rt.Blobs(b.ex.home.Tenant) }

// lease returns the lease of a session.
func (b *boxes) lease(k session.Key) *lease.Lease { return b.ex.leases.Get(k, b.ex.rt.Leases) }

// owner returns the execution as the owner of its leases.
func (b *boxes) owner() *lease.Owner {
	ex := b.ex
	return &lease.Owner{Workspaces: &ex.rt.Workspaces, Blobs: b.blobs(), Epoch: ex.granted.Epoch, Allowed: ex.task.Sandbox.Paths(), Forked: b.forked}
}

// forked reports whether a session has the same head as at its fork, like its siblings:
// the run is a branch, or made the session.
func (b *boxes) forked(k session.Key, head blob.Digest) bool {
	ex := b.ex
	if k == ex.home {
		return ex.task.Branch != nil && ex.granted.Base.Placement().Head == head
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	h := ex.sessions.held[k]
	return h != nil && h.parent != session.Key{}
}
