package natsbus

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

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Register puts workflows on offer for a pool: whoever asks for workflows sees
// them, whatever node of the pool is up. It replaces what the pool offered
// under the same names, and changes nothing that says the same already.
func (c *Conn) Register(ctx context.Context, pool string, workflows []messages.Workflow) error {
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
			return fmt.Errorf("natsbus: register workflow %s: %w", w.Name, err)
		}
		subject := keySubject(BucketRegistry, messages.WorkflowKey(pool, w.Name))
		have, err := c.leaderLast(ctx, "KV_"+BucketRegistry, subject)
		if err == nil && string(have.Data) == string(data) {
			continue
		}
		if err != nil && !errors.Is(err, errNoMessage) {
			return fmt.Errorf("natsbus: register workflow %s: %w", w.Name, err)
		}
		if err := c.store(ctx, &nats.Msg{Subject: subject, Data: data}); err != nil {
			return fmt.Errorf("natsbus: register workflow %s: %w", w.Name, err)
		}
	}
	return nil
}

// Withdraw takes workflows off a pool. Those that it does not offer are left
// alone.
func (c *Conn) Withdraw(ctx context.Context, pool string, workflows ...string) error {
	if err := validPool(pool); err != nil {
		return err
	}
	for _, name := range workflows {
		if err := session.ValidID("workflow", name); err != nil {
			return err
		}
		if err := c.unregister(ctx, messages.WorkflowKey(pool, name)); err != nil {
			return fmt.Errorf("natsbus: withdraw workflow %s: %w", name, err)
		}
	}
	return nil
}

// unregister deletes an entry of the registry, if there is one.
func (c *Conn) unregister(ctx context.Context, key string) error {
	subject := keySubject(BucketRegistry, key)
	have, err := c.leaderLast(ctx, "KV_"+BucketRegistry, subject)
	switch {
	case errors.Is(err, errNoMessage), err == nil && have.Header.Get("KV-Operation") != "":
		return nil
	case err != nil:
		return err
	}
	return c.store(ctx, &nats.Msg{Subject: subject, Header: nats.Header{"KV-Operation": {"DEL"}}})
}

// validPool refuses a name that cannot be a pool's.
func validPool(pool string) error {
	if pool == messages.SignalPool {
		return fmt.Errorf("natsbus: no pool is named %q: choose another name", pool)
	}
	return session.ValidID("pool", pool)
}

// Workflows returns what all pools offer, sorted by name and pool.
func (c *Conn) Workflows(ctx context.Context) ([]messages.Workflow, error) {
	var out []messages.Workflow
	for m, err := range c.values(ctx, BucketRegistry, "workflow.>") {
		if err != nil {
			return nil, fmt.Errorf("natsbus: workflows on offer: %w", err)
		}
		var w messages.Workflow
		if json.Unmarshal(m.Data, &w) == nil && session.ValidID("workflow", w.Name) == nil {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b messages.Workflow) int {
		return strings.Compare(a.Name+" "+a.Pool, b.Name+" "+b.Pool)
	})
	return out, nil
}

// catalog is the registry's workflows as of a few seconds ago. It is safe for
// concurrent use.
type catalog struct {
	c *Conn

	mu   sync.Mutex
	all  []messages.Workflow
	read time.Time
}

// catalogFresh is how old an entry may be. What is not there is looked for in
// the registry itself.
const catalogFresh = 5 * time.Second

func (c *Conn) newCatalog() *catalog { return &catalog{c: c} }

// find returns who offers a workflow: in a revision, if one is given. all are
// the workflows on offer.
func (g *catalog) find(ctx context.Context, workflow, revision string) (found *messages.Workflow, all []messages.Workflow, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.read) < catalogFresh {
		if w := offerOf(g.all, workflow, revision); w != nil {
			return w, g.all, nil
		}
	}
	if all, err = g.c.Workflows(ctx); err != nil {
		return nil, nil, err
	}
	g.all, g.read = all, time.Now()
	return offerOf(all, workflow, revision), all, nil
}

func offerOf(all []messages.Workflow, workflow, revision string) *messages.Workflow {
	i := slices.IndexFunc(all, func(w messages.Workflow) bool {
		return w.Name == workflow && (revision == "" || w.Revision == revision)
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}

// pool says who gets the runs of a workflow. A revision that nobody offers goes
// to those who offer another one: a run may go on under new code.
func (g *catalog) pool(ctx context.Context, workflow, revision string) (pool, class string) {
	w, all, err := g.find(ctx, workflow, revision)
	if w == nil && err == nil {
		w = offerOf(all, workflow, "")
	}
	if w == nil {
		return DefaultPool, messages.ClassInteractive
	}
	return w.Pool, classOf(w.Class)
}

func classOf(class string) string {
	if class == messages.ClassBatch {
		return class
	}
	return messages.ClassInteractive
}
