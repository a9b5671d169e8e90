package natsbus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/internal/sessiontest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestReadBehind reads a session through a server that lacks the last commits: the
// question is put again.
func TestReadBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
		k := session.Key{Tenant: "default", ID: c.HomeOf("default", "r1")}
		sessiontest.Grow(t, c.Log(), k, session.Position{}, 4)
		s, err := c.ServeQueries(t.Context(), &Queries{Values: journal.NewValues(c.Log())})
		if err != nil {
			t.Fatal(err)
		}
		_, subject, err := EventSubject(k)
		if err != nil {
			t.Fatal(err)
		}
		// Such a server answers with its own last commit, and with a page that ends there.
		page, paged := natstest.Once(`"batch":512`, natstest.Replace(`"batch":512`, `"batch":2`))
		last, asked := natstest.Once(`"last_by_subj":"`+subject, natstest.Replace(`"last_by_subj":"`+subject+`"`, `"seq":2`))
		w.Set(nil, func(b []byte) bool { return last(b) && page(b) })
		m, err := c.NC.Request(messages.QueryPrefix+"default.session", fmt.Appendf(nil, `{"session":%q}`, k.ID), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		var got messages.Session
		if err := json.Unmarshal(m.Data, &got); err != nil || got.Version != 4 || !asked() || !paged() {
			t.Errorf("it was read at version %d, want 4: %s, %v; the server was asked: %v, %v", got.Version, m.Data, err, asked(), paged())
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestReadBesideForeign: messages that are no commits are no commits that are missed.
func TestReadBesideForeign(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
		k := session.Key{Tenant: "default", ID: c.HomeOf("default", "r1")}
		_, subject, err := EventSubject(k)
		if err != nil {
			t.Fatal(err)
		}
		foreign := func() {
			if _, err := c.JS.Publish(t.Context(), subject, []byte("hello")); err != nil {
				t.Fatal(err)
			}
		}
		sessiontest.Grow(t, c.Log(), k, session.Position{}, 2)
		foreign()
		foreign()
		s, err := c.ServeQueries(t.Context(), &Queries{Values: journal.NewValues(c.Log())})
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.NC.Request(messages.QueryPrefix+"default.session", fmt.Appendf(nil, `{"session":%q}`, k.ID), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		var got messages.Session
		if err := json.Unmarshal(m.Data, &got); err != nil || got.Version != 2 {
			t.Errorf("it was read at version %d, want 2: %s, %v", got.Version, m.Data, err)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestSkippedOnce counts the messages of a session that are no commits: of those that
// it has read it remembers how many they are, until they are purged.
func TestSkippedOnce(t *testing.T) {
	besideOperator(t, func(t *testing.T, node, op *Conn) {
		w, o := &natstest.Wire{}, node.o
		o.Dialer = w.Through(o.Dialer)
		c := dial(t, &o)
		k := session.Key{Tenant: "default", ID: c.HomeOf("default", "r1")}
		stream, subject, err := EventSubject(k)
		if err != nil {
			t.Fatal(err)
		}
		var read atomic.Int64 // messages of pages, in which each names its sequence
		w.Set(func(b []byte) bool {
			read.Add(int64(bytes.Count(b, []byte("Nats-Sequence: "))))
			return true
		}, nil)
		foreign := func() {
			t.Helper()
			if _, err := c.JS.Publish(t.Context(), subject, []byte("hello")); err != nil {
				t.Fatal(err)
			}
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
		at := sessiontest.Grow(t, c.Log(), k, session.Position{}, 30)
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
		s, err := op.JS.Stream(t.Context(), stream)
		if err == nil {
			err = s.Purge(t.Context(), jetstream.WithPurgeSubject(subject))
		}
		if err != nil {
			t.Fatal(err)
		}
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
			d, err := time.ParseDuration(text)
			if err != nil {
				t.Fatal(err)
			}
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
