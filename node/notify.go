package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/internal/workflows/notify"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// notifier submits the notifications of a node's list, and sends them.
type notifier struct {
	n       *Instance
	list    *notify.List
	queries *api.Queries
}

// readTargets reads the list of a node; nil without one, and for a node that does not offer
// the workflow that sends.
func readTargets(n *Instance) (*notifier, error) {
	if n.o.Targets == "" || n.o.Idle || n.o.Fleet.Routing == RouteOnly || n.offer.addsOnly() {
		return nil, nil
	}
	if b := n.link.bound; b != nil {
		return nil, fmt.Errorf("node: targets: this node is bound to tenant %s; give the list to nodes of all tenants", b.Tenant())
	}
	list, err := notify.Read(n.o.Targets)
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return &notifier{n: n, list: list}, nil
}

// registrations returns the workflow that sends.
func (r *notifier) registrations() []flow.Registration {
	if r == nil {
		return nil
	}
	return []flow.Registration{notify.Registration(r.list, r.n.o.Env, r.open, r.n.o.world)}
}

// followNotify is the name of the followers that submit notifications.
const followNotify = "notify"

// startNotifier starts the notifications of a node with a list: of events from now on, or
// from where the last node has left off. ctx bounds the start.
func (n *Instance) startNotifier(ctx, all context.Context) error {
	r, c := n.notifier, n.link.conn
	if r == nil {
		return nil
	}
	if r.list.Link == "" {
		r.list.Link, _ = WebURL(n)
	}
	if err := n.link.retry(ctx, func(ctx context.Context) error { return c.Projections.MarkStart(ctx, followNotify) }); err != nil {
		return err
	}
	n.services.background(all, "notifications", func(ctx context.Context) error {
		return c.Dispatch.Follow(ctx, &dispatch.RelayOptions{Incarnation: n.link.incarnation, Known: n.fleet.known()},
			&project.Follower{Name: followNotify, Kinds: notify.Kinds, Take: r.take, Letter: r.letter}, r.watchStuck)
	})
	return nil
}

// take submits the notifications of a commit.
func (r *notifier) take(ctx context.Context, k session.Key, stream string, seq uint64, facts []journal.Fact) error {
	for i := range facts {
		e, ok := notify.EventOf(&facts[i])
		if !ok || !slices.Contains(r.list.Tenants(e.Kind), k.Tenant) {
			continue
		}
		if e.Workflow == "" {
			g, err := conn.Retry(ctx, func(ctx context.Context) (*journal.ClaimResult, error) { return r.n.values.Recorded(ctx, k, e.Run) })
			switch {
			case errors.Is(err, session.ErrArchived), errors.Is(err, run.ErrUnknownRun), errors.Is(err, session.ErrNotFound):
				continue // the run has ended since
			case err != nil:
				return err
			}
			e.Workflow = g.Record.Task.Workflow
		}
		e.Sequence = seq
		if err := r.submit(ctx, k.Tenant, fmt.Sprintf("%s/%d/%d", stream, seq, i), e); err != nil {
			return err
		}
	}
	return nil
}

// letter submits the notifications of a dead letter.
func (r *notifier) letter(ctx context.Context, t session.Tenant, workflow string, at uint64, l *messages.DeadLetter) error {
	return r.submit(ctx, t, fmt.Sprintf("letter/%d/%d", at, l.TimeMS), notify.Event{Kind: notify.DeadLetter, Run: l.Run, Workflow: workflow, Sequence: at, TimeMS: l.TimeMS})
}

// submitAgain is the longest time between two attempts to submit.
const submitAgain = 5 * time.Second

// submit submits the notifications of an event. While TASKS is full or the servers are away
// it tries again, until ctx ends.
func (r *notifier) submit(ctx context.Context, t session.Tenant, place string, e notify.Event) error {
	for _, task := range r.list.Tasks(t, place, e) {
		for wait := 100 * time.Millisecond; ; wait = min(2*wait, submitAgain) {
			err := r.n.link.conn.Dispatch.Submit(ctx, t, messages.UserOperator, notify.Workflow, &task)
			if err == nil {
				break
			}
			if wait == submitAgain {
				r.n.o.Logger.Warn("a notification was not submitted yet", "run", string(e.Run), "kind", e.Kind, "err", err)
			}
			if conn.Pause(ctx, wait); ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

// stuckEvery is the time between two looks for stuck runs. A run that is stuck in both, in
// the same place, is reported.
const stuckEvery = time.Minute

// watchStuck submits notifications about stuck runs until ctx ends.
func (r *notifier) watchStuck(ctx context.Context) error {
	tick := time.NewTicker(stuckEvery)
	defer tick.Stop()
	for before := map[string]bool{}; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now := map[string]bool{}
		for _, t := range r.list.Tenants(notify.Stuck) {
			if err := r.stuckOf(ctx, t, before, now); err != nil && ctx.Err() == nil {
				r.n.o.Logger.Warn("stuck runs were not looked for", "tenant", string(t), "err", err)
			}
		}
		before = now
	}
}

// stuckOf submits the notifications about a tenant's runs that are stuck, and were in the
// same place before. A run that needs review has its event in the log.
func (r *notifier) stuckOf(ctx context.Context, t session.Tenant, before, now map[string]bool) error {
	c := r.n.link.conn
	answer, err := r.queries.Answer(ctx, c, t, messages.QueryRuns, wire.Query{States: []run.State{run.Queued, run.Running, run.Waiting}, Limit: 1000})
	runs, ok := answer.(wire.Runs)
	if err != nil || !ok {
		return err
	}
	workflows := map[run.ID]string{}
	for _, one := range runs.Runs {
		workflows[one.Run] = one.Workflow
	}
	slices.Reverse(runs.Runs) // the oldest are asked about first
	for id, l := range view.LiveNotes(ctx, func(ctx context.Context, id run.ID) (messages.Live, error) {
		answer, err := r.queries.Answer(ctx, c, t, messages.QueryLive, wire.Query{Run: id})
		l, _ := answer.(messages.Live)
		return l, err
	}, runs.Runs) {
		if l.State == run.NeedsReview || view.Stuck(l) == "" {
			continue
		}
		place := fmt.Sprintf("stuck/%s/%s/%d", t, id, l.Attempt)
		if len(l.Steps) > 0 {
			place += "/" + string(l.Steps[0].Step)
		}
		if now[place] = true; !before[place] {
			continue
		}
		if err := r.submit(ctx, t, place, notify.Event{Kind: notify.Stuck, Run: id, Workflow: workflows[id], TimeMS: l.Since}); err != nil {
			return err
		}
	}
	return nil
}

// open reports whether a question is open.
func (r *notifier) open(ctx context.Context, t session.Tenant, id run.ID, step run.Path) (bool, error) {
	answer, err := r.queries.Answer(ctx, r.n.link.conn, t, messages.QueryRun, wire.Query{Run: id})
	info, ok := answer.(messages.RunInfo)
	switch {
	case err == nil && ok:
		return slices.ContainsFunc(info.Waits, func(w messages.Wait) bool { return w.Step == step }), nil
	case errors.Is(err, run.ErrUnknownRun), errors.Is(err, run.ErrPruned), errors.Is(err, session.ErrArchived):
		return false, nil
	case ctx.Err() == nil && !errors.Is(err, session.ErrUnavailable):
		err = fmt.Errorf("%w: %w", session.ErrUnavailable, err) // ends this attempt of the run
	}
	return false, err
}
