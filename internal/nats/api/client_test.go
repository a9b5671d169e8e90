package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The tests of package client are here, beside the node that they need.

// visitor is a client without credentials, in the bubble. cut breaks its connection,
// which is restored by itself.
func visitor(t *testing.T, srv *natsserver.Server) (c *client.Client, cut func() error) {
	return visitorOf(t, srv, "")
}

func visitorOf(t *testing.T, srv *natsserver.Server, tenant session.Tenant) (c *client.Client, cut func() error) {
	t.Helper()
	var link atomic.Pointer[net.Conn]
	c = must.Get(client.Connect(t.Context(), "", &client.Options{Tenant: tenant, Name: "visitor", Dialer: func() (net.Conn, error) {
		to, err := srv.Dial()
		link.Store(&to)
		return to, err
	}}))(t)
	t.Cleanup(func() { must.Report(t, c.Close()) })
	return c, func() error { return (*link.Load()).Close() }
}

func text(s string) json.RawMessage {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return data
}

func TestClientDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		n := startNode(t, srv, "node-1")
		c, _ := visitor(t, srv)
		ctx := t.Context()
		var said string
		var kinds []messages.Kind
		r, err := c.Do(ctx, "agent", messages.Task{ID: "r1", Session: "talk", Input: text("hello")}, func(u client.Update) {
			switch {
			case u.Delta != nil:
				said += u.Delta.Text
			case u.Event != nil:
				kinds = append(kinds, u.Event.Kind)
			}
		})
		if err != nil || r.Err() != nil || r.Output != "echo: hello" {
			t.Fatalf("%+v, %v", r, err)
		}
		if said != "echo: hello" {
			t.Errorf("deltas said %q", said)
		}
		if len(kinds) < 4 || kinds[len(kinds)-1] != messages.KindEnded {
			t.Errorf("events %v, want those up to the end", kinds)
		}
		if late, err := c.Wait(ctx, "r1"); err != nil || late.Output != r.Output {
			t.Errorf("a late reader gets %+v, %v", late, err)
		}
		s, err := c.Sessions.Get(ctx, "talk")
		if err != nil || len(s.Chunks) != 2 || s.Chunks[1].Text != "echo: hello" || s.Session != r.Session {
			t.Errorf("session %+v, %v", s, err)
		}
		if old, err := c.Sessions.Get(ctx, "talk:1"); err != nil || len(old.Chunks) != 1 {
			t.Errorf("version 1: %+v, %v", old, err)
		}
		if ri, err := c.Runs.Get(ctx, messages.Last); err != nil || ri.Run != "r1" || ri.State != run.Succeeded {
			t.Errorf("last run %+v, %v", ri, err)
		}
		if rs, err := c.Runs.List(ctx, &client.RunsOptions{States: []run.State{run.Succeeded}}); err != nil || len(rs) != 1 {
			t.Errorf("runs %+v, %v", rs, err)
		}
		if g, err := c.Lineage.Graph(ctx, "talk", "svg"); err != nil || len(g.Tree) != 1 || !strings.HasPrefix(g.Picture, "<svg") {
			t.Errorf("graph %+v, %v", g, err)
		}
		if roots, err := c.Sessions.Roots(ctx, 0); err != nil || len(roots) != 1 || roots[0] != s.Session {
			t.Errorf("roots %v, %v", roots, err)
		}
		ws, err := c.Workflows(ctx)
		if err != nil || len(ws) != 3 || ws[0].Name != "agent" {
			t.Errorf("workflows %+v, %v", ws, err)
		}
		n.stop()
	})
}

func TestClientErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		n := startNode(t, srv, "node-1")
		c, _ := visitor(t, srv)
		ctx := t.Context()
		if r, err := c.Do(ctx, "agent", messages.Task{ID: "r1", Input: text("one")}, nil); err != nil || r.Err() != nil {
			t.Fatal(r, err)
		}
		if r, err := c.Do(ctx, "agent", messages.Task{ID: "r1", Input: text("one")}, nil); err != nil || r.Output != "echo: one" {
			t.Errorf("the same task again: %+v, %v", r, err)
		}
		_, reused := c.Do(ctx, "agent", messages.Task{ID: "r1", Input: text("two")}, nil)
		unknown := must.Get(c.Do(ctx, "nobody", messages.Task{}, nil))(t)
		_, large := c.Submit(ctx, "agent", messages.Task{Input: text(strings.Repeat("x", 300<<10))})
		_, noRun := c.Runs.Get(ctx, "nobody")
		_, noSession := c.Sessions.Get(ctx, "nobody")
		_, noVersion := c.Sessions.Get(ctx, string(sessionOf(t, c, "r1"))+":77")
		_, nobody := c.Wait(ctx, "nobody")
		other, _ := visitorOf(t, srv, "acme")
		short, cancel := context.WithTimeout(ctx, time.Second)
		_, foreign := other.Runs.List(short, nil)
		cancel()
		for name, tc := range map[string]struct {
			err, is error
			names   string
		}{
			"reused id":         {reused, run.ErrKeyReused, "r1"},
			"unknown workflow":  {unknown.Err(), nil, "nobody"},
			"large input":       {large, session.ErrTooLarge, "workspace"},
			"cancel of an end":  {c.Runs.Cancel(ctx, "r1", messages.Control{}), run.ErrState, "succeeded"},
			"resolve of an end": {c.Runs.Resolve(ctx, "r1", messages.Control{Decision: run.Again, Reason: "x"}), run.ErrState, "r1"},
			"unknown run":       {noRun, run.ErrUnknownRun, "nobody"},
			"unknown session":   {noSession, session.ErrNotFound, "nobody"},
			"unknown version":   {noVersion, session.ErrNotFound, "77"},
			"wait for nobody":   {nobody, run.ErrUnknownRun, "nobody"},
			"another tenant":    {foreign, conn.ErrDenied, "publish to rath.query.acme.runs"},
		} {
			if tc.err == nil || tc.is != nil && !errors.Is(tc.err, tc.is) || !strings.Contains(tc.err.Error(), tc.names) {
				t.Errorf("%s: %v, want %v, naming %q", name, tc.err, tc.is, tc.names)
			}
		}
		n.stop()
		if _, err := c.Runs.List(ctx, nil); !errors.Is(err, client.ErrNoAnswer) || !strings.Contains(err.Error(), "start a node") {
			t.Errorf("without a node: %v", err)
		}
	})
}

func sessionOf(t *testing.T, c *client.Client, id run.ID) session.ID {
	t.Helper()
	r := must.Get(c.Runs.Result(t.Context(), id))(t)
	return r.Session
}

func TestDialUnreachable(t *testing.T) {
	addr := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	_, err := client.Connect(t.Context(), "nats://"+addr, nil)
	if !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "start a server") {
		t.Errorf("got %v", err)
	}
}

// TestClientWaitsForANode submits before there is a node, and waits over the
// change of nodes and the loss of connections.
func TestClientWaitsForANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		startNode(t, srv, "node-0").stop() // the streams are there now
		c, cut := visitor(t, srv)
		ctx := t.Context()
		ids := []run.ID{"r1", "r2"}
		for _, id := range ids {
			must.Get(c.Submit(ctx, "hold", messages.Task{ID: id}))(t)
		}
		done := make(chan error, len(ids))
		for _, id := range ids {
			go func() {
				r, err := c.Wait(ctx, id)
				if err == nil {
					err = r.Err()
				}
				done <- err
			}()
		}
		time.Sleep(20 * time.Second)
		n := startNode(t, srv, "node-1")
		time.Sleep(time.Second)
		must.Do(t, cut())
		n.kill()
		time.Sleep(time.Second)
		n = startNode(t, srv, "node-2")
		close(n.hold)
		for range ids {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		n.stop()
	})
}

// TestClientTail reads lineage while nodes come and go and connections break:
// every record once and in order.
func TestClientTail(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		c, cut := visitor(t, srv)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var order []string
		var at string
		done := make(chan error, 1)
		go func() {
			for r, err := range c.Lineage.Tail(ctx, "", "") {
				if err != nil {
					done <- err
					return
				}
				order = append(order, place(&r.Record))
				at = r.Cursor
			}
		}()
		for i := range 6 {
			n.submitted(t, nc, 5*i, 5*i+5)
			time.Sleep(2 * time.Millisecond)
			switch i {
			case 1, 4:
				must.Do(t, cut())
			case 2:
				n.stop()
				n = startNode(t, srv, "node-2")
			}
		}
		ended(t, nc, 0, 30)
		time.Sleep(10 * time.Second)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		var want []string
		for _, m := range n.told(t) {
			for i := range m.records {
				want = append(want, place(&m.records[i]))
			}
		}
		if !slices.Equal(order, want) {
			t.Fatalf("the records %v, want %v", order, want)
		}
		// A tree, from the middle on.
		root := sessionOf(t, c, "r3")
		tree := 0
		bounded, cancelTree := context.WithTimeout(t.Context(), time.Minute)
		defer cancelTree()
		for r, err := range c.Lineage.Tail(bounded, string(root), "") {
			if err != nil {
				break
			}
			if r.Record.Root != root {
				t.Errorf("a record of %s", r.Record.Root)
			}
			tree++
		}
		if g, err := c.Runs.Get(t.Context(), "r3"); err != nil || tree < g.Steps+3 {
			t.Errorf("%d records of run %+v, %v", tree, g, err)
		}
		again, cancelAgain := context.WithTimeout(t.Context(), time.Minute)
		defer cancelAgain()
		for r, err := range c.Lineage.Tail(again, "", at) {
			if err == nil {
				t.Errorf("after the last one comes %+v", r)
			}
		}
		n.stop()
	})
}

// TestTailOverLostLineage has LINEAGE begin anew behind a tail, as a server that lost it: the
// sequences that the tail has read have other records then, among them new ones. Every record
// comes once.
func TestTailOverLostLineage(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		c, _ := visitor(t, srv)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		got := map[string]int{}
		done := make(chan error, 1)
		go func() {
			for r, err := range c.Lineage.Tail(ctx, "", "") {
				if err != nil {
					done <- err
					return
				}
				mu.Lock()
				got[string(r.Record.Session)+" "+place(&r.Record)]++
				mu.Unlock()
			}
		}()
		n.submitted(t, nc, 0, 20)
		ended(t, nc, 0, 20)
		time.Sleep(10 * time.Second)
		s := must.Get(n.operator().Stream(t.Context(), streams.StreamLineage))(t)
		cfg := s.CachedInfo().Config
		must.Do(t, n.operator().DeleteStream(t.Context(), streams.StreamLineage))
		must.Get(n.operator().CreateStream(t.Context(), cfg))(t)
		must.Do(t, n.conn.Cut())
		n.submitted(t, nc, 20, 30)
		time.Sleep(time.Second) // the node is connected again, and answers queries
		ended(t, nc, 20, 30)
		time.Sleep(20 * time.Second)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		want := 0
		for _, m := range n.told(t) {
			for i := range m.records {
				want++
				if name := string(m.records[i].Session) + " " + place(&m.records[i]); got[name] != 1 {
					t.Errorf("record %s came %d times", name, got[name])
				}
			}
		}
		if len(got) != want {
			t.Errorf("%d records came, LINEAGE has %d", len(got), want)
		}
		n.stop()
	})
}

// TestWaitReturnsWithTheResult: a waiting client gets the result as soon as it exists.
func TestWaitReturnsWithTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		n := startNode(t, srv, "node-1")
		c, _ := visitor(t, srv)
		must.Get(c.Submit(t.Context(), "hold", messages.Task{ID: "r1"}))(t)
		time.AfterFunc(time.Second, func() { close(n.hold) })
		r, err := c.Wait(t.Context(), "r1")
		if err != nil || r.State != run.Succeeded {
			t.Fatalf("result %+v: %v", r, err)
		}
		if s, err := c.Sessions.Get(t.Context(), string(r.Session)); err != nil || r.Version != 1 || s.Version != r.Version {
			t.Errorf("the result is version %d, the session is at %d: %v", r.Version, s.Version, err)
		}
		if late := time.Since(time.UnixMilli(r.EndedMS)); late > 20*time.Millisecond {
			t.Errorf("Wait returned %v after the end of the run", late)
		}
		n.stop()
	})
}

// TestListProgress lists runs of several pages, and gets the progress after each except the
// last.
func TestListProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const runs = 230
		srv := natstest.Start(t, nil)
		n := startNode(t, srv, "node-1")
		c, _ := visitor(t, srv)
		nc := guest(t, srv)
		for i := range runs {
			submit(t, nc, "agent", fmt.Sprintf(`{"id":"r%d","input":"x"}`, i))
		}
		time.Sleep(20 * time.Second)
		var found []int
		var parts []float64
		all, err := c.Runs.List(t.Context(), &client.RunsOptions{Progress: func(n int, part float64) {
			found, parts = append(found, n), append(parts, part)
		}})
		if err != nil || len(all) != runs {
			t.Fatalf("%d runs, %v", len(all), err)
		}
		if len(found) < 2 || found[0] == 0 || !slices.IsSorted(found) || found[len(found)-1] >= runs {
			t.Errorf("told of %d runs", found)
		}
		if !slices.IsSorted(parts) || len(parts) == 0 || parts[0] < 0 || parts[len(parts)-1] <= parts[0] || parts[len(parts)-1] >= 1 {
			t.Errorf("told of parts %v", parts)
		}
		n.stop()
	})
}
