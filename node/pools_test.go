package node

import (
	"context"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
)

// TestPoolWithoutNodes has two pools offer a workflow and ends the only node of the
// first: its offer outlives it. A run that a relay places goes to the pool that has a
// node.
func TestPoolWithoutNodes(t *testing.T) {
	t.Parallel()
	srv, _ := tenants(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	first := member(t, srv, Options{Fleet: Fleet{Pool: "first"}, Workflows: []flow.Registration{named("both", "first")}})
	member(t, srv, Options{Fleet: Fleet{Pool: "second"}, Workflows: []flow.Registration{named("both", "second")}})
	must.Do(t, first.Close())
	later := messages.Task{ID: "late", NotBefore: time.Now().Add(100 * time.Millisecond)} // a relay places it
	if r, err := clientOf(t, srv, "acme", "ann").Do(ctx, "both", later, nil); err != nil || r.Output != "second" {
		t.Errorf("%+v, %v", r, err)
	}
}
