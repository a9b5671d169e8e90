package node

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestDurabilityInRecords: the log of a session and its lineage hold the durability of
// a node's commits, unless it is the highest.
func TestDurabilityInRecords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ level, want string }{{"lazy", "lazy"}, {"", ""}} {
		t.Run("level="+tt.level, func(t *testing.T) {
			n := begin(t, &Options{Store: t.TempDir(), NATS: NATS{Level: tt.level}, Models: Models{Source: newWitnessed(t, "auto.txtar")}, Workflows: writers()}).started(t)
			c, err := n.Client(t.Context())
			must.Do(t, err)
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
			defer cancel()
			r, err := c.Do(ctx, "auto", messages.Task{Input: []byte(autoInput)}, nil)
			if err != nil || r.State != run.Succeeded {
				t.Fatalf("auto: %+v, %v", r, err)
			}
			durabilityOf(t, n, c, r.Session, tt.want)
		})
	}
}

// durabilityOf checks that each epoch of a session begins with a level, in the log and
// in the records of the same commit.
func durabilityOf(t *testing.T, n *Instance, c *client.Client, id session.ID, want string) {
	t.Helper()
	opened := 0
	for ev := range events(t, n, id) {
		if ev.Kind != journal.KindWriter {
			continue
		}
		opened++
		if w, err := journal.Decode[journal.WriterOpened](ev); err != nil || w.Durability != want {
			t.Errorf("the log says durability %q, %v; want %q", w.Durability, err, want)
		}
	}
	claims := 0
	for _, rec := range records(t, c, string(id), 1) {
		first := rec.Commit == 1 // which begins the one epoch of this log
		switch {
		case first && rec.Durability != want:
			t.Errorf("the %s record of commit 1 says durability %q, want %q", rec.Kind, rec.Durability, want)
		case !first && rec.Durability != "":
			t.Errorf("the %s record of commit %d says durability %q again", rec.Kind, rec.Commit, rec.Durability)
		case first && rec.Kind == messages.KindClaimed:
			claims++
		}
	}
	if opened != 1 || claims == 0 {
		t.Errorf("%d epochs and %d claims in the first commit, want one epoch and a claim", opened, claims)
	}
}

// TestFewerMonitorsThanReplicas: one of three servers that syncs every write is no
// evidence about the others, so a node that may ask only that one does not start.
func TestFewerMonitorsThanReplicas(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	_, err := Start(ctx, &Options{
		NATS: NATS{URL: "nats://127.0.0.1:1", Level: "fsync", Replicas: 3, Monitor: []string{"http://127.0.0.1:1"}}, Store: t.TempDir(), Models: Models{Source: newWitnessed(t, "auto.txtar")}, Workflows: writers(),
	})
	if !errors.Is(err, streams.ErrDurability) || !strings.Contains(err.Error(), "each stream is on 3") {
		t.Errorf("it starts, or says %v", err)
	}
}
