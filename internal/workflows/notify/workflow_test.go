package notify

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func TestMain(m *testing.M) { flowtest.Main(m) }

// TestDownForHours: a target that is down for hours gets the notification with its next
// attempt, under one id. The time between attempts grows to an hour. The id is the same after
// a crash at any commit, too.
func TestDownForHours(t *testing.T) {
	t.Parallel()
	const down = 14
	var mu sync.Mutex
	var ids []string
	status := http.StatusServiceUnavailable
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if ids = append(ids, r.Header.Get("Webhook-Id")); len(ids) > down {
			status = http.StatusOK
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	s := senderOf(t, "targets:\n  ops: {form: standard, url: env:URL, secret: env:KEY, private: true}\nrules:\n  - {on: [failed], to: ops}\n", map[string]string{"URL": server.URL, "KEY": key}, nil)
	in := must.Get(json.Marshal(input{Event: Event{Kind: Failed, Run: "r1"}, To: "ops"}))(t)
	g := Registration(s.list, s.env, nil, s.world)
	took := make(chan time.Duration, 1)
	flowtest.Run(t, flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
		began := flow.Now(ctx)
		w := must.Get(g.NewFor(flow.Info{Run: "notify-1", Tenant: "default", Input: in}))(t)
		v, err := w.Forward(ctx, v)
		if err == nil {
			took <- flow.Now(ctx).Sub(began)
		}
		return v, err
	}), session.New(), "testdata/none.txtar", nil)
	if n := len(ids); n != down+1 || len(slices.Compact(ids)) != 1 {
		t.Errorf("%d attempts: %q", n, ids)
	}
	// 5 s, doubled nine times, and four hours.
	if d, want := <-took, 5115*time.Second+4*time.Hour; d < want || d > want+time.Minute {
		t.Errorf("told after %v, want %v", d, want)
	}
	ids, status = nil, http.StatusOK
	flowtest.CrashEverywhere(t, func() flow.Workflow {
		return must.Get(g.NewFor(flow.Info{Run: "notify-1", Tenant: "default", Input: in}))(t)
	}, session.New(), "testdata/none.txtar", nil)
	if len(slices.Compact(ids)) != 1 {
		t.Errorf("ids %q", ids)
	}
}

// TestReminder: a reminder waits, and is sent if the question is open then.
func TestReminder(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{true, false} {
		got := 0
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got++ }))
		s := senderOf(t, "targets:\n  ops: {form: slack, url: env:URL, private: true}\nrules:\n  - {on: [question], to: ops}\n", map[string]string{"URL": server.URL}, nil)
		in := must.Get(json.Marshal(input{Event: Event{Kind: reminder, Run: "r1", Step: "3"}, To: "ops", AfterMS: time.Hour.Milliseconds()}))(t)
		w := must.Get(Registration(s.list, s.env, func(_ context.Context, _ session.Tenant, id run.ID, step run.Path) (bool, error) {
			if id != "r1" || step != "3" || got > 0 {
				t.Errorf("asked about %s at %s after %d messages", id, step, got)
			}
			return open, nil
		}, s.world).NewFor(flow.Info{Run: "notify-1", Tenant: "default", Input: in}))(t)
		flowtest.Run(t, w, session.New(), "testdata/none.txtar", nil)
		server.Close()
		if (got == 1) != open {
			t.Errorf("open %t: %d messages", open, got)
		}
	}
}
