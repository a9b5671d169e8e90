package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Registry has the workflows and tools on offer, and the nodes that offer them. It is safe for
// concurrent use.
type Registry struct {
	messages *conn.Messages
	streams  *streams.Streams
}

// Register offers workflows for a pool: a client that lists workflows sees them while any
// node of the pool is up. It replaces the pool's offers of the same names, and does not
// rewrite equal ones.
func (r *Registry) Register(ctx context.Context, pool string, workflows []messages.Workflow) error {
	if err := validPool(pool); err != nil {
		return err
	}
	for _, w := range workflows {
		w.Pool = pool
		if err := session.ValidID("workflow", w.Name); err != nil {
			return err
		}
		data, err := messages.Encode(w)
		if err != nil {
			return fmt.Errorf("nats/dispatch: register workflow %s: %w", w.Name, err)
		}
		if err := r.Enter(ctx, wire.WorkflowKey(pool, w.Name), data); err != nil {
			return fmt.Errorf("nats/dispatch: register workflow %s: %w", w.Name, err)
		}
	}
	return nil
}

// Withdraw removes workflows from a pool's offers. It ignores workflows that the pool does
// not offer.
func (r *Registry) Withdraw(ctx context.Context, pool string, workflows ...string) error {
	if err := validPool(pool); err != nil {
		return err
	}
	for _, name := range workflows {
		if err := session.ValidID("workflow", name); err != nil {
			return err
		}
		if err := r.Unregister(ctx, wire.WorkflowKey(pool, name)); err != nil {
			return fmt.Errorf("nats/dispatch: withdraw workflow %s: %w", name, err)
		}
	}
	return nil
}

// Unregister deletes an entry of the registry, if there is one.
func (r *Registry) Unregister(ctx context.Context, key string) error { return r.Enter(ctx, key, nil) }

// Enter stores an entry of the registry, or deletes it if data is nil, unless the entry
// already has that state. An entry that another process stores meanwhile is newer: a retry
// after a lost acknowledgement, or of a frozen node, does not undo it. An entry that is
// deleted while this one arrives is replaced.
func (r *Registry) Enter(ctx context.Context, key string, data []byte) error {
	subject := streams.KeySubject(streams.BucketRegistry, key)
	var header nats.Header
	if data == nil {
		header = nats.Header{"KV-Operation": {"DEL"}}
	}
	gone := func(m conn.Message) bool { return m.Seq == 0 || m.Header.Get("KV-Operation") != "" }
	look := func() (conn.Message, error) {
		m, err := r.messages.LeaderLast(ctx, "KV_"+streams.BucketRegistry, subject)
		if errors.Is(err, conn.ErrNoMessage) {
			return conn.Message{}, nil
		}
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, conn.RetryBudget)
	defer cancel()
	have, err := look()
	unclear := false // a try may have been stored
	for wait := conn.NewBackoff(); err == nil; {
		if gone(have) == (data == nil) && string(have.Data) == string(data) {
			return nil
		}
		_, failed := r.messages.PublishExpecting(ctx, subject, have.Seq, header, data)
		clash := errors.Is(failed, conn.ErrExpectation)
		if !clash && !conn.IsTransient(failed) {
			return failed
		}
		unclear = unclear || !clash
		if wait.Sleep(ctx) != nil {
			return failed
		}
		before := have.Seq
		if have, err = look(); err == nil && have.Seq != before && (unclear || data == nil || !gone(have)) {
			return nil
		}
	}
	return err
}

// validPool refuses a name that cannot be a pool's.
func validPool(pool string) error {
	return session.ValidID("pool", pool)
}

// Workflows returns the offers of all pools, sorted by name and pool. It reads any replica,
// which may lag behind. For named workflows that the replica does not have it asks the
// registry's leader.
func (r *Registry) Workflows(ctx context.Context, named ...string) ([]messages.Workflow, error) {
	var out []messages.Workflow
	for m, err := range r.streams.Values(ctx, streams.BucketRegistry, "workflow.>") {
		if err != nil {
			return nil, fmt.Errorf("nats/dispatch: workflows on offer: %w", err)
		}
		var w messages.Workflow
		if json.Unmarshal(m.Data, &w) == nil && session.ValidID("workflow", w.Name) == nil {
			out = append(out, w)
		}
	}
	for _, name := range named {
		if slices.ContainsFunc(out, func(w messages.Workflow) bool { return w.Name == name }) || session.ValidID("workflow", name) != nil {
			continue
		}
		now, err := r.offering(ctx, name)
		if err != nil {
			return nil, err
		}
		out = append(out, now...)
	}
	slices.SortFunc(out, func(a, b messages.Workflow) int {
		return strings.Compare(a.Name+" "+a.Pool, b.Name+" "+b.Pool)
	})
	return out, nil
}

// offering returns the current offers of a workflow, from the registry's leader.
func (r *Registry) offering(ctx context.Context, workflow string) ([]messages.Workflow, error) {
	var out []messages.Workflow
	filter := streams.KeySubject(streams.BucketRegistry, wire.WorkflowKey("*", workflow))
	for from := uint64(1); ; {
		m, err := r.messages.LeaderNext(ctx, "KV_"+streams.BucketRegistry, filter, from)
		if errors.Is(err, conn.ErrNoMessage) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("nats/dispatch: workflow %s: %w", workflow, err)
		}
		var w messages.Workflow
		if m.Header.Get("KV-Operation") == "" && json.Unmarshal(m.Data, &w) == nil {
			out = append(out, w)
		}
		from = m.Seq + 1
	}
}

// catalog is the registry's workflows as of a few seconds ago. It is safe for
// concurrent use.
type catalog struct {
	r *Registry

	mu   sync.Mutex
	all  []messages.Workflow
	read time.Time
}

// catalogFresh is the maximum age of an entry. Missing workflows are looked up in the
// registry itself.
const catalogFresh = 5 * time.Second

func (r *Registry) newCatalog() *catalog { return &catalog{r: r} }

// find returns the offers of a workflow to a tenant: in a revision, if one is given. If
// there is none, it returns all workflows on offer to the tenant in all.
func (g *catalog) find(ctx context.Context, t session.Tenant, workflow, revision string) (found, all []messages.Workflow, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.read) < catalogFresh {
		if found = OffersOf(g.all, t, workflow, revision); len(found) > 0 {
			return found, nil, nil
		}
	}
	if all, err = g.r.Workflows(ctx); err == nil {
		all, err = g.r.withoutGone(ctx, all)
	}
	if err != nil {
		return nil, nil, err
	}
	g.all, g.read = all, time.Now()
	if found = OffersOf(all, t, workflow, revision); len(found) > 0 {
		return found, nil, nil
	}
	return nil, OfferedTo(all, t), nil
}

// withoutGone removes the offers of a tenant's nodes that have left, if nodes for all
// tenants offer the same.
func (r *Registry) withoutGone(ctx context.Context, all []messages.Workflow) ([]messages.Workflow, error) {
	type revision struct{ name, revision string }
	shared := map[revision]bool{}
	for _, w := range all {
		if _, bound := messages.PoolOf(w.Pool); !bound {
			shared[revision{w.Name, w.Revision}] = true
		}
	}
	twice := func(w messages.Workflow) bool {
		_, bound := messages.PoolOf(w.Pool)
		return bound && shared[revision{w.Name, w.Revision}]
	}
	if !slices.ContainsFunc(all, twice) {
		return all, nil
	}
	here := map[string]bool{}
	for n, err := range r.boundNodes(ctx) {
		if err != nil {
			return nil, fmt.Errorf("nats/dispatch: nodes of tenants: %w", err)
		}
		for _, pool := range n.Pools {
			here[pool] = true
		}
	}
	return slices.DeleteFunc(all, func(w messages.Workflow) bool { return twice(w) && !here[w.Pool] }), nil
}

// OffersOf returns the offers of a workflow that may get the runs of a tenant, in a
// revision if one is given: the offer of its own nodes, else the offers of shared nodes.
func OffersOf(all []messages.Workflow, t session.Tenant, workflow, revision string) (found []messages.Workflow) {
	for i := range all {
		w := &all[i]
		if w.Name != workflow || revision != "" && w.Revision != revision {
			continue
		}
		switch of, bound := messages.PoolOf(w.Pool); {
		case bound && of == t:
			return all[i : i+1]
		case !bound:
			found = append(found, *w)
		}
	}
	return found
}

// OfferedTo returns the workflows on offer to a tenant: by shared nodes, and by its own.
func OfferedTo(all []messages.Workflow, t session.Tenant) []messages.Workflow {
	out := make([]messages.Workflow, 0, len(all))
	for _, w := range all {
		if of, bound := messages.PoolOf(w.Pool); !bound || of == t {
			out = append(out, w)
		}
	}
	return out
}

// pools returns the pools that may get the runs of a workflow. A revision that is not on
// offer goes to pools that offer another one: a run may resume under new code. An error
// means that the registry could not be read, so that the pools are unknown.
func (g *catalog) pools(ctx context.Context, t session.Tenant, workflow, revision string) ([]schedule.Pool, error) {
	found, all, err := g.find(ctx, t, workflow, revision)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		found = OffersOf(all, t, workflow, "")
	}
	if len(found) == 0 {
		return []schedule.Pool{{Name: DefaultPool}}, nil
	}
	out := make([]schedule.Pool, len(found))
	for i, w := range found {
		out[i] = schedule.Pool{Name: w.Pool, Batch: w.Class == messages.ClassBatch}
	}
	return out, nil
}
