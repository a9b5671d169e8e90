package api

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestReadBehind reads a session through a server that lacks the last commits: the
// question is put again.
func TestReadBehind(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
		k := session.Key{Tenant: "default", ID: c.Logs.HomeOf("default", "r1")}
		sessiontest.Grow(t, c.Logs.Log(), k, commitlog.Position{}, 4)
		s := must.Get(c.ServeQueries(t.Context(), &Queries{Values: journal.NewValues(c.Logs.Log())}))(t)
		_, subject := must.Pair(eventlog.EventSubject(k))(t)
		// Such a server answers with its own last commit, and with a page that ends there.
		page, paged := natstest.Once(`"batch":512`, natstest.Replace(`"batch":512`, `"batch":2`))
		last, asked := natstest.Once(`"last_by_subj":"`+subject, natstest.Replace(`"last_by_subj":"`+subject+`"`, `"seq":2`))
		w.Set(nil, func(b []byte) bool { return last(b) && page(b) })
		m := must.Get(c.Conn.NC.Request(messages.QueryPrefix+"default.session", fmt.Appendf(nil, `{"session":%q}`, k.ID), time.Minute))(t)
		var got messages.Session
		if err := json.Unmarshal(m.Data, &got); err != nil || got.Version != 4 || !asked() || !paged() {
			t.Errorf("it was read at version %d, want 4: %s, %v; the server was asked: %v, %v", got.Version, m.Data, err, asked(), paged())
		}
		must.Report(t, s.Stop())
	})
}

// TestReadBesideForeign: messages that are no commits do not count as missing commits.
func TestReadBesideForeign(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
		k := session.Key{Tenant: "default", ID: c.Logs.HomeOf("default", "r1")}
		_, subject := must.Pair(eventlog.EventSubject(k))(t)
		foreign := func() {
			must.Get(c.Conn.JS.Publish(t.Context(), subject, []byte("hello")))(t)
		}
		sessiontest.Grow(t, c.Logs.Log(), k, commitlog.Position{}, 2)
		foreign()
		foreign()
		s := must.Get(c.ServeQueries(t.Context(), &Queries{Values: journal.NewValues(c.Logs.Log())}))(t)
		m := must.Get(c.Conn.NC.Request(messages.QueryPrefix+"default.session", fmt.Appendf(nil, `{"session":%q}`, k.ID), time.Minute))(t)
		var got messages.Session
		if err := json.Unmarshal(m.Data, &got); err != nil || got.Version != 2 {
			t.Errorf("it was read at version %d, want 2: %s, %v", got.Version, m.Data, err)
		}
		must.Report(t, s.Stop())
	})
}
