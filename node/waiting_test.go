package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestWaiting counts the tasks of a tenant that no node has taken.
func TestWaiting(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	host := must.Get(Start(t.Context(), &Options{Store: store, NATS: NATS{Level: "lazy", Port: -1}, Idle: true, Name: "host", Fleet: Fleet{Gossip: DevGossip()}}))(t)
	defer func() { must.Report(t, host.Close()) }()
	of := func(tenant session.Tenant) *client.Client {
		c := must.Get(host.ClientOf(t.Context(), tenant))(t)
		return c
	}
	c, acme := of(session.DefaultTenant), of("acme")
	defer c.Close()
	defer acme.Close()
	wait := func(c *client.Client, want uint64) {
		t.Helper()
		if _, n, err := c.Fleet.Tasks(t.Context()); err != nil || n != want {
			t.Errorf("%d tasks of %s wait, %v; want %d", n, c.Tenant(), err, want)
		}
	}
	wait(c, 0)
	ids := []run.ID{"one", "two"}
	for _, id := range ids {
		must.Get(c.Submit(t.Context(), "counts", messages.Task{ID: id}))(t)
	}
	must.Get(acme.Submit(t.Context(), "counts", messages.Task{ID: "theirs"}))(t)
	wait(c, 2)
	wait(acme, 1)
	// A client that did not submit a task follows it while it waits, and no other run.
	other := of(session.DefaultTenant)
	defer other.Close()
	if _, err := other.Wait(t.Context(), "none"); !errors.Is(err, run.ErrUnknownRun) {
		t.Errorf("waiting for a run that there is not: %v", err)
	}
	follower := must.Get(other.Follow(t.Context(), "one"))(t)
	followed := make(chan error, 1)
	go func() {
		for u, err := range follower.All(t.Context()) {
			if err != nil || u.Result != nil {
				followed <- err
				return
			}
		}
	}()

	n := must.Get(Start(t.Context(), &Options{Dev: store, Store: t.TempDir(), Name: "other", Fleet: Fleet{Pool: "default"}, Workflows: []flow.Registration{counts("add")}}))(t)
	defer func() { must.Report(t, n.Close()) }()
	for _, id := range ids {
		if r, err := c.Wait(t.Context(), id); err != nil || r.State != run.Succeeded {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if r, err := acme.Wait(t.Context(), "theirs"); err != nil || r.State != run.Succeeded {
		t.Errorf("%+v, %v", r, err)
	}
	if err := <-followed; err != nil {
		t.Errorf("following a task that waited: %v", err)
	}
	wait(c, 0)
	wait(acme, 0)
}

// TestWaitingRuns asks the endpoint as autoscalers do.
func TestWaitingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var relays []dispatch.PoolWaiting
		var silent error
		h := &health{incarnation: "n1", phase: starting, reason: "the node begins to start"}
		get := func(query string) (int, string) {
			rec := httptest.NewRecorder()
			h.waiting(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/waiting"+query, nil))
			return rec.Code, strings.TrimSpace(rec.Body.String())
		}
		says := func(query string, code int, body string) {
			t.Helper()
			if got, text := get(query); got != code || text != body {
				t.Errorf("%q: %d %s, want %d %s", query, got, text, code, body)
			}
		}
		unavailable := func(p phase, reason string) {
			t.Helper()
			says("?pool=review", http.StatusServiceUnavailable, fmt.Sprintf(
				`{"ok":false,"phase":%q,"reason":%q,"incarnation":"n1","version":%q}`, p, reason, Version()))
		}
		unavailable(starting, "the node begins to start")

		nothing := func(context.Context) error { return nil }
		h.serves(nothing, nothing, func(context.Context) ([]dispatch.PoolWaiting, error) {
			asked.Add(1)
			time.Sleep(answerFresh)
			return relays, silent
		})
		says("", http.StatusOK, `{"pools":[]}`)
		says("?pool=review", http.StatusOK, `{"pool":"review","runs":0,"interactive":0,"batch":0}`)
		says("?pool=a.b", http.StatusBadRequest, session.ValidID("pool", "a.b").Error())

		time.Sleep(answerFresh)
		relays = []dispatch.PoolWaiting{
			{Pool: "default", Class: messages.ClassInteractive, Runs: 3},
			{Pool: "review", Class: messages.ClassInteractive, Runs: 10},
			{Pool: "review", Class: messages.ClassBatch, Runs: 2},
			{Pool: "slow", Class: messages.ClassBatch, Runs: 7},
		}
		before := asked.Load()
		var many sync.WaitGroup
		for range 100 {
			many.Go(func() { says("?pool=review", http.StatusOK, `{"pool":"review","runs":12,"interactive":10,"batch":2}`) })
		}
		many.Wait()
		if n := asked.Load() - before; n != 1 {
			t.Errorf("100 at once asked the relays %d times", n)
		}
		says("", http.StatusOK, `{"pools":[{"pool":"default","runs":3,"interactive":3,"batch":0},`+
			`{"pool":"review","runs":12,"interactive":10,"batch":2},{"pool":"slow","runs":7,"interactive":0,"batch":7}]}`)

		time.Sleep(answerFresh)
		silent = errors.New("no relay reports waiting runs")
		unavailable(serving, "no relay reports waiting runs")
		silent = nil
		time.Sleep(answerFresh)
		says("?pool=slow", http.StatusOK, `{"pool":"slow","runs":7,"interactive":0,"batch":7}`)
		h.drains()
		unavailable(draining, "the node stops and takes no more work")
		h.runs.wait()
	})
}

// TestWaitingRunsWithoutRelay asks a node whose servers are away: its answer reports
// that, in less time than an autoscaler waits.
func TestWaitingRunsWithoutRelay(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	o := Options{NATS: NATS{URL: srv.URL(), Level: "lazy"}, Store: t.TempDir(), HTTP: HTTP{Health: "127.0.0.1:0"}, Drain: time.Second}
	o.NATS.User, o.NATS.Password = srv.Node()
	base := begin(t, &o).started(t).HealthURL()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	ask := func() (code int, took time.Duration, body string) {
		req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, base+"/waiting?pool=default", nil))(t)
		began := time.Now()
		resp := must.Get(http.DefaultClient.Do(req))(t)
		defer resp.Body.Close()
		data := must.Get(io.ReadAll(resp.Body))(t)
		return resp.StatusCode, time.Since(began), string(data)
	}
	for code, body := 0, ""; code != http.StatusOK; { // until all partitions have a relay
		if code, _, body = ask(); ctx.Err() != nil {
			t.Fatalf("%d %s", code, body)
		}
	}
	must.Do(t, srv.Shutdown(ctx))
	for {
		code, took, body := ask()
		if code == http.StatusOK && ctx.Err() == nil {
			continue // the last answer is reused for a moment
		}
		if code != http.StatusServiceUnavailable || !strings.Contains(body, `"reason":"`) || took > soon {
			t.Errorf("without servers: %d after %v: %s", code, took, body)
		}
		return
	}
}
