package api_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// kill ends the node like kill -9, as seen by all others.
func (n *node) kill() {
	n.t.Helper()
	if n.gone {
		return
	}
	n.gone = true
	n.conn.Kill()
	n.cancel()
	n.work.Wait()
	for _, s := range n.services {
		_ = s.Stop() // its connection has ended
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), time.Millisecond)
	defer cancel()
	must.Report(n.t, n.sys.Drain(drain))
}

// records returns the records in LINEAGE, and the expected ones: the records of the commits
// in the event streams.
func (n *node) records(t *testing.T) (have, want []string) {
	t.Helper()
	for _, m := range n.told(t) {
		if want := lineage.StoredSubject(m.records); m.Subject != want {
			t.Errorf("records of %s on %s", want, m.Subject)
		}
		for _, r := range m.records {
			have = append(have, place(&r))
		}
	}
	for p := range n.conn.Streams.Partitions() {
		keys := map[session.Key]bool{}
		for _, m := range n.stored(t, streams.EventStream(n.conn.Streams.Generation(), p)) {
			if c, err := commitlog.Decode(m.Data); err == nil {
				keys[c.Key] = true
			}
		}
		var entries []commitlog.Entry
		for k := range keys {
			for e, err := range n.conn.Logs.Log().Read(t.Context(), k, commitlog.Position{}) {
				must.Do(t, err)
				entries = append(entries, e)
			}
		}
		slices.SortFunc(entries, func(a, b commitlog.Entry) int { return cmp.Compare(a.At.Token, b.At.Token) })
		for _, e := range entries {
			records := must.Get(lineage.Derive(e))(t)
			for _, r := range records {
				r.Partition, r.Seq = p, e.At.Token
				want = append(want, place(&r))
			}
		}
	}
	return have, want
}

func place(r *messages.Record) string {
	return fmt.Sprintf("%d %6d.%02d %s %s %s", r.Partition, r.Seq, r.K, r.Kind, r.Session, r.Summary)
}

// checkLineage demands each record exactly once, and the records of each partition in
// order.
func (n *node) checkLineage(t *testing.T) {
	t.Helper()
	have, want := n.records(t)
	for p := range n.conn.Streams.Partitions() {
		prefix := fmt.Sprintf("%d ", p)
		of := func(all []string) []string {
			return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s[:len(prefix)] != prefix })
		}
		if diff := gocmp.Diff(of(want), of(have)); diff != "" {
			t.Errorf("lineage of partition %d (-event stream +LINEAGE):\n%s", p, diff)
		}
	}
}

func (n *node) submitted(t *testing.T, nc *nats.Conn, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		submit(t, nc, "agent", fmt.Sprintf(`{"id":"r%d","input":"number %d"}`, i, i))
	}
}

// resultOf waits for the stored result of a run.
func resultOf(t *testing.T, nc *nats.Conn, id string) object {
	t.Helper()
	for began := time.Now(); ; {
		r := ask(t, nc, "rath.query.default.result", fmt.Sprintf(`{"run":%q}`, id))
		switch {
		case r["state"] != nil:
			return r
		case r["code"] != "wrong_state" && r["code"] != "unknown_run", time.Since(began) > time.Minute:
			t.Fatalf("no result of %s: %v", id, r)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// succeeded waits until runs have.
func succeeded(t *testing.T, nc *nats.Conn, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if r := resultOf(t, nc, id); r["state"] != "succeeded" {
			t.Errorf("run %s: %v", id, r)
		}
	}
}

// ended waits until runs that were submitted have succeeded.
func ended(t *testing.T, nc *nats.Conn, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		succeeded(t, nc, fmt.Sprintf("r%d", i))
	}
}
