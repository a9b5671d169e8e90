package api_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// mute takes its share of the control requests like a node that freezes between the commit
// and the answer: the request takes effect, and the client gets no answer. A repeated
// request is answered.
func mute(t *testing.T, n *node) (muted *atomic.Int32) {
	t.Helper()
	user, password := n.srv.Node()
	nc := must.Get(nats.Connect("", nats.InProcessServer(inProcess(n.srv.Dial)), nats.UserInfo(user, password), nats.CustomInboxPrefix(conn.NodeInbox)))(t)
	var passing sync.WaitGroup
	t.Cleanup(func() {
		passing.Wait()
		nc.Close()
	})
	muted = new(atomic.Int32)
	seen := map[string]bool{} // by the subscription's goroutine
	if _, err := nc.QueueSubscribe("rath.ctl.>", "rath", func(m *nats.Msg) {
		again := &nats.Msg{Subject: m.Subject, Header: nats.Header{"again": {"1"}}, Data: m.Data}
		if m.Header.Get("again") != "" || seen[string(m.Data)] { // the other one has to take it
			passing.Go(func() {
				a, err := nc.RequestMsg(again, 20*time.Second)
				if err == nil {
					err = m.Respond(a.Data)
				}
				must.Report(t, err)
			})
			return
		}
		muted.Add(1)
		seen[string(m.Data)] = true
		again.Reply = nc.NewInbox()
		must.Report(t, nc.PublishMsg(again))
	}); err != nil {
		t.Fatal(err)
	}
	must.Do(t, nc.Flush())
	return muted
}

// TestControlAgain has control requests reach a node that freezes after the commit: they
// are sent to another node within seconds, which finds them applied.
func TestControlAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		n := startNodeWith(t, srv, "node-1", &spec{slots: 1, more: []flow.Registration{question}})
		c, _ := visitor(t, srv)
		raw := must.Get(api.Connect(t.Context(), &streams.Options{Options: conn.Options{Dialer: srv.Dial, Name: "visitor"}, Client: true}))(t)
		t.Cleanup(func() { must.Report(t, raw.Conn.Close()) })
		muted := mute(t, n)
		quick := func(what string, err error, began time.Time) {
			t.Helper()
			if d := time.Since(began); err != nil || d > 2*time.Second {
				t.Errorf("%s: after %v: %v", what, d, err)
			}
		}
		control := func(id run.ID, verb string, b messages.Control) {
			t.Helper()
			began := time.Now()
			_, err := raw.Requests.Control(t.Context(), session.DefaultTenant, id, verb, b)
			quick(verb+" "+string(id), err, began)
		}
		say := func(what string) {
			t.Helper()
			began := time.Now()
			quick(what, c.Sessions.Message(t.Context(), "chat", messages.Control{Text: what, By: "ann"}), began)
		}
		chunks := func(want ...string) {
			t.Helper()
			s := must.Get(c.Sessions.Get(t.Context(), "chat"))(t)
			var got []string
			for _, c := range s.Chunks {
				got = append(got, c.Text)
			}
			if len(got) != len(want) {
				t.Errorf("the session says %q, want %q", got, want)
			}
		}
		must.Get(c.Do(t.Context(), "agent", messages.Task{ID: "r0", Session: "chat", Input: text("hello")}, nil))(t)
		var said []string
		for _, what := range []string{"one", "two", "three", "four"} {
			say(what)
			said = append(said, what)
		}
		chunks(append([]string{"hello", "echo: hello"}, said...)...)

		for _, id := range []run.ID{"r1", "r2", "r3", "r4"} {
			must.Get(c.Submit(t.Context(), "question", messages.Task{ID: id}))(t)
			time.Sleep(200 * time.Millisecond)
			control(id, messages.VerbQuarantine, messages.Control{Reason: "odd"})
			control(id, messages.VerbRelease, messages.Control{Reason: "fine"})
			control(id, messages.VerbRebudget, messages.Control{Budget: &messages.Budget{Tokens: 9}})
			control(id, messages.VerbCancel, messages.Control{Reason: "enough"})
			if r, err := c.Wait(t.Context(), id); err != nil || r.State != run.Cancelled {
				t.Errorf("result %+v, %v", r, err)
			}
			// A task that waits for the one slot.
			for _, task := range []run.ID{id + "-hold", id + "-early"} {
				must.Get(c.Submit(t.Context(), "hold", messages.Task{ID: task}))(t)
				time.Sleep(200 * time.Millisecond)
			}
			control(id+"-early", messages.VerbCancel, messages.Control{Reason: "never mind"})
			if r, err := c.Runs.Result(t.Context(), id+"-early"); err != nil || r.State != run.Cancelled {
				t.Errorf("result %+v, %v", r, err)
			}
			control(id+"-hold", messages.VerbCancel, messages.Control{Reason: "enough"})
			if r, err := c.Wait(t.Context(), id+"-hold"); err != nil || r.State != run.Cancelled {
				t.Errorf("result %+v, %v", r, err)
			}
		}
		for _, id := range []run.ID{"r1", "r2", "r3", "r4"} {
			began := time.Now()
			again, err := c.Runs.Rerun(t.Context(), id, messages.Control{})
			quick("rerun "+string(id), err, began)
			if again != id+"-r1" {
				t.Errorf("run %s goes on as %q", id, again)
			}
			control(again, messages.VerbCancel, messages.Control{Reason: "enough"})
			if _, err := c.Runs.Get(t.Context(), id+"-r2"); !errors.Is(err, run.ErrUnknownRun) {
				t.Errorf("run %s was asked for once, and there is a second rerun: %v", id, err)
			}
			// A request for another run gets it, although the tasks are the same.
			if again, err = c.Runs.Rerun(t.Context(), id, messages.Control{}); err != nil || again != id+"-r2" {
				t.Errorf("rerun %s: %q, %v", id, again, err)
			}
			control(again, messages.VerbCancel, messages.Control{Reason: "enough"})
		}
		if muted.Load() < 8 {
			t.Errorf("%d requests reached the frozen node: the test shows nothing", muted.Load())
		}
		n.stop()
	})
}

// TestResolveAgain is TestControlAgain for runs that wait for a person.
func TestResolveAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		n := startNode(t, srv, "node-1")
		c, _ := visitor(t, srv)
		// The server chooses which of two subscriptions gets a request: a play continues
		// until each decision met the frozen node; one play in thousands of millions does
		// not get there.
		var ids []run.ID
		for i := range 64 {
			ids = append(ids, run.ID(fmt.Sprintf("r%d", i)))
		}
		for _, id := range ids {
			must.Get(c.Submit(t.Context(), "once", messages.Task{ID: id}))(t)
		}
		time.Sleep(time.Second)
		n.kill()
		n = startNode(t, srv, "node-2")
		muted := mute(t, n)
		bounded, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		met := map[string]bool{} // decisions that reached the frozen node
		for i, id := range ids {
			if len(met) == 2 {
				break
			}
			for r := (messages.RunInfo{}); r.State != run.NeedsReview && bounded.Err() == nil; time.Sleep(50 * time.Millisecond) {
				r, _ = c.Runs.Get(bounded, id) // it may not be there yet
			}
			decision, want := run.Happened, run.Succeeded
			if i%2 == 1 {
				decision, want = run.Fail, run.Failed
			}
			before, began := muted.Load(), time.Now()
			if err := c.Runs.Resolve(bounded, id, messages.Control{Decision: decision, Reason: "looked"}); err != nil || time.Since(began) > 2*time.Second {
				t.Errorf("resolve %s: after %v: %v", id, time.Since(began), err)
			}
			if r, err := c.Wait(bounded, id); err != nil || r.State != want {
				t.Errorf("result %+v, %v", r, err)
			}
			if muted.Load() > before {
				met[decision] = true
			}
		}
		if len(met) < 2 {
			t.Errorf("of the two decisions only %v reached the frozen node: the test shows nothing", met)
		}
		n.stop()
	})
}
