package api_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/natsserver"
	later "github.com/rathcluster/rath/internal/release"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// formerSubject is where former releases stored a record, and the server told it from.
func formerSubject(r *lineage.Record) string {
	return lineage.SubjectPrefix + strings.TrimPrefix(r.TailSubject(), lineage.TailPrefix)
}

// toFormer makes of LINEAGE what former releases had: a message for each record, on a
// subject of its own, and one at a time.
func toFormer(t *testing.T, n *node) {
	t.Helper()
	js := n.operator()
	all := n.told(t)
	s, err := js.Stream(t.Context(), streams.StreamLineage)
	if err == nil {
		err = s.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.RePublish = &jetstream.RePublish{Source: lineage.SubjectPrefix + ">", Destination: lineage.TailPrefix + ">"}
	cfg.AllowBatchPublish = false
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for len(all[len(all)-1].records) < 2 {
		all = all[:len(all)-1]
	}
	var records []lineage.Record
	for _, m := range all {
		records = append(records, m.records...)
	}
	for _, r := range records[:len(records)-1] { // it stopped in the middle of a commit
		data, err := r.Encode()
		if err == nil {
			_, err = js.Publish(t.Context(), formerSubject(&r), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLineageOfFormerRelease goes on in a stream of former releases, in which each
// record has a subject of its own that the server tells: its records are read and not
// stored again, and what comes is told once.
func TestLineageOfFormerRelease(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		submit(t, nc, "agent", `{"id":"a","session":"talk","input":"one"}`)
		succeeded(t, nc, "a")
		n.submitted(t, nc, 0, 5)
		ended(t, nc, 0, 5)
		time.Sleep(time.Second)
		n.stop()
		toFormer(t, n)
		before := len(n.stored(t, streams.StreamLineage))

		user, password := srv.Operator()
		op, err := api.Connect(t.Context(), &streams.Options{Options: conn.Options{Dialer: srv.Dial, User: user, Password: password, Inbox: conn.NodeInbox}, Client: true})
		if err != nil {
			t.Fatal(err)
		}
		node, err := api.Connect(t.Context(), options(srv, t))
		if err != nil {
			t.Fatal(err)
		}
		if err := node.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "stream LINEAGE: republish is") {
			t.Errorf("a node that finds the stream of a former release: %v", err)
		}
		for range 2 {
			if err := op.SettleFormer(t.Context()); err != nil {
				t.Error(err)
			}
		}
		info, err := op.LookStream(t.Context(), streams.StreamLineage)
		if err := errors.Join(err, node.Verify(t.Context()), node.Close(), op.Close()); err != nil {
			t.Fatal(err)
		}
		if !info.Config.AllowBatchPublish {
			t.Error("the stream takes no batches")
		}

		told, err := nc.SubscribeSync(lineage.TailPrefix + "default.>")
		if err == nil {
			err = nc.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
		n = startNode(t, srv, "node-2")
		submit(t, nc, "agent", `{"id":"b","session":"talk","input":"two"}`)
		succeeded(t, nc, "b")
		n.submitted(t, nc, 5, 10)
		ended(t, nc, 5, 10)
		time.Sleep(time.Second)
		n.checkLineage(t)

		subjects, roots := map[string]bool{}, map[session.ID]bool{}
		want, have := map[string]int{}, map[string]int{}
		for i, m := range n.told(t) {
			if i < before {
				continue
			}
			subjects[m.Subject] = true
			roots[m.records[0].Root] = true
			for _, r := range m.records {
				data, err := r.Encode()
				if err != nil {
					t.Fatal(err)
				}
				want[r.TailSubject()+" "+string(later.Extend(data))]++
			}
		}
		for {
			m, err := told.NextMsg(time.Second)
			if err != nil {
				break
			}
			have[m.Subject+" "+string(m.Data)]++
		}
		if diff := gocmp.Diff(want, have); diff != "" {
			t.Errorf("records that were told (-LINEAGE +told):\n%s", diff)
		}
		if len(roots) < 6 || len(subjects) != len(roots) {
			t.Errorf("%d trees, want 6 or more, have the subjects %v", len(roots), slices.Sorted(maps.Keys(subjects)))
		}

		c, _ := visitor(t, srv)
		for _, id := range []string{"a", "b", "r0", "r9"} {
			if r, err := c.Run(t.Context(), run.ID(id)); err != nil || r.State != "succeeded" {
				t.Errorf("run %s: %+v, %v", id, r, err)
			}
		}
		page, err := c.Lineage(t.Context(), "talk", 0, 500)
		if err != nil {
			t.Fatal(err)
		}
		runs := map[string]int{}
		for _, r := range page.Records {
			runs[fmt.Sprint(r.Record.Run, " ", r.Record.Kind)]++
		}
		if runs["a ended"] != 1 || runs["b ended"] != 1 {
			t.Errorf("the tree of both runs: %v", runs)
		}
		n.stop()
	})
}
