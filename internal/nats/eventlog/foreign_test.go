package eventlog

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/session"
)

// TestSkippedOnce counts the messages of a session that are no commits: the count is cached
// until they are purged.
func TestSkippedOnce(t *testing.T) {
	layer.BesideOperator(t, func(t *testing.T, node, op *Logs) {
		w, o := &natstest.Wire{}, node.streams.O
		o.Dialer = w.Through(o.Dialer)
		c := layer.Dial(t, &o)
		k := session.Key{Tenant: "default", ID: c.HomeOf("default", "r1")}
		stream, subject, err := EventSubject(k)
		must.Do(t, err)
		var read atomic.Int64 // messages of pages, in which each names its sequence
		w.Set(func(b []byte) bool {
			read.Add(int64(bytes.Count(b, []byte("Nats-Sequence: "))))
			return true
		}, nil)
		foreign := func() {
			t.Helper()
			must.Get(c.conn.JS.Publish(t.Context(), subject, []byte("hello")))(t)
		}
		count := func(most, want uint64, atMost int64) {
			t.Helper()
			synctest.Wait() // a page that was read in part has come
			read.Store(0)
			if n, err := c.skipped(t.Context(), k, most); err != nil || n != want || read.Load() > atMost {
				t.Errorf("%d of at most %d are no commits, %v, want %d; %d messages were read, want %d at most", n, most, err, want, read.Load(), atMost)
			}
		}
		foreign()
		at := sessiontest.Grow(t, c.Log(), k, commitlog.Position{}, 30)
		foreign()
		count(1, 1, 40)
		count(9, 2, 40)
		if read.Load() == 0 {
			t.Error("nothing was read")
		}
		count(9, 2, 0)
		count(1, 1, 0)
		sessiontest.Grow(t, c.Log(), k, at, 2)
		foreign()
		count(9, 3, 3)
		s, err := op.conn.JS.Stream(t.Context(), stream)
		if err == nil {
			err = s.Purge(t.Context(), jetstream.WithPurgeSubject(subject))
		}
		must.Do(t, err)
		foreign()
		count(9, 1, 1)
	})
}

func TestLeads(t *testing.T) {
	for name, tc := range map[string]struct {
		leader  string
		active  string // how long ago it heard from each other server
		servers int
		want    bool
	}{
		"of three":           {"a", "10ms 900ms", 3, true},
		"one is away":        {"a", "10ms 1h", 3, true},
		"one never came":     {"a", "10ms 0s", 3, true},
		"cut off":            {"a", "5s 5s", 3, false},
		"just elected":       {"a", "0s 0s", 3, false},
		"of one that is not": {"a", "10ms", 3, true},
		"alone":              {"a", "", 3, false},
		"half of four":       {"a", "10ms 1h 1h", 4, false},
		"more than half":     {"a", "10ms 10ms 1h 1h", 5, true},
		"a follower":         {"", "10ms 10ms", 3, false},
	} {
		group := &jetstream.ClusterInfo{Leader: tc.leader}
		for text := range strings.FieldsSeq(tc.active) {
			d := must.Get(time.ParseDuration(text))(t)
			group.Replicas = append(group.Replicas, &jetstream.PeerInfo{Active: d})
		}
		if got := leads(group, tc.servers); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if leads(nil, 3) {
		t.Error("nothing is known, and it leads")
	}
}
