package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Register puts workflows on offer for a pool: whoever asks for workflows sees
// them, whatever node of the pool is up. It replaces what the pool offered
// under the same names, and changes nothing that says the same already.
func (c *Conn) Register(ctx context.Context, pool string, workflows []messages.Workflow) error {
	if err := session.ValidID("pool", pool); err != nil {
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
		if _, err := patiently(ctx, func(ctx context.Context) (uint64, error) {
			return c.publish(ctx, &nats.Msg{Subject: subject, Data: data})
		}); err != nil {
			return fmt.Errorf("natsbus: register workflow %s: %w", w.Name, err)
		}
	}
	return nil
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
