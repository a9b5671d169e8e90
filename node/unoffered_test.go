package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestRemoteThatNoNodeOffers: a branch whose workflow no node offers waits for one. The
// run's live state shows it, and the deadline of the run ends both.
func TestRemoteThatNoNodeOffers(t *testing.T) {
	t.Parallel()
	n := must.Get(Start(t.Context(), &Options{Store: t.TempDir(), NATS: NATS{Level: "lazy", Port: -1}, Fleet: Fleet{Gossip: DevGossip()}, Workflows: []flow.Registration{
		{Name: "asks", New: func() flow.Workflow { return flow.Remote{Workflow: "reserch", Revision: "2"} }},
	}}))(t)
	defer func() { must.Report(t, n.Close()) }()
	c := must.Get(n.Client(t.Context()))(t)
	defer c.Close()
	ended := make(chan messages.Result, 1)
	go func() {
		r, err := c.Do(t.Context(), "asks", messages.Task{ID: "one", Deadline: time.Now().Add(4 * time.Second)}, nil)
		must.Report(t, err)
		ended <- r
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
	defer cancel()
	want, diff := []messages.LiveUnoffered{{Workflow: "reserch", Revision: "2", Branches: 1}}, "it was not told"
	for diff != "" && ctx.Err() == nil {
		if l, err := c.Runs.Live(ctx, "one"); err == nil {
			diff = cmp.Diff(want, l.Unoffered)
		}
	}
	if diff != "" {
		t.Errorf("what no node offers (-want +got):\n%s", diff)
	}
	r := <-ended
	if r.State != run.TimedOut || r.Code != run.CodeDeadline || !strings.Contains(r.Error, `at step 0.gather for branches "reserch"`) {
		t.Errorf("the run is %s, %s: %s", r.State, r.Code, r.Error)
	}
}
