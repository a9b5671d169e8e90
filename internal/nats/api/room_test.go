package api

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestGreedyTenantLeavesRoom has one tenant send the largest tasks of as many workflows as
// the stream has room for, until each is answered as busy. Another tenant's tasks are
// accepted, even the largest.
func TestGreedyTenantLeavesRoom(t *testing.T) {
	ctx := t.Context()
	o := streamstest.NodeOptions(natstest.Start(t, nil))
	o.StoreBytes = 640 << 20
	c := layer.Dial(t, o)
	must.Do(t, c.Streams.Provision(ctx))
	tasks, err := c.Streams.Reconciler.LookStream(ctx, streams.StreamTasks)
	must.Do(t, err)
	want := int(tasks.Config.MaxMsgsPerSubject)
	largest := bytes.Repeat([]byte("x"), messages.MaxTask)
	for w := range 2 {
		sent := 0
		for ; sent <= want; sent++ {
			_, err := c.Requests.Submit(ctx, "greedy", fmt.Sprint("w", w), "", largest)
			if errors.Is(err, run.ErrBusy) {
				break
			}
			must.Do(t, err)
		}
		if sent != want {
			t.Errorf("%d tasks of a workflow were taken, want %d", sent, want)
		}
	}
	for range 3 {
		if _, err := c.Requests.Submit(ctx, "modest", "w0", "", largest); err != nil {
			t.Errorf("another tenant's task: %v", err)
		}
	}
	_, err = c.Requests.Submit(ctx, "modest", "w0", "", append(largest, 'x'))
	if !errors.Is(err, session.ErrTooLarge) || !strings.Contains(err.Error(), "workspace") {
		t.Errorf("a task that is larger than any may be: %v", err)
	}
}
