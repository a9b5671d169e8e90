package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestLineageExactlyOnce restarts and kills nodes while runs are under way.
func TestLineageExactlyOnce(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		for i := range 6 {
			n := startNode(t, srv, fmt.Sprintf("node-%d", i))
			n.submitted(t, nc, 10*i, 10*i+10)
			switch i % 3 {
			case 0: // everything settles, and the checkpoints are saved
				ended(t, nc, 0, 10*i+10)
				time.Sleep(2 * time.Second)
				n.stop()
			case 1: // drained in the middle
				time.Sleep(3 * time.Millisecond)
				n.stop()
			case 2:
				time.Sleep(5 * time.Millisecond)
				n.kill()
			}
		}
		n := startNode(t, srv, "node-last")
		ended(t, nc, 0, 60)
		time.Sleep(time.Second)
		n.checkLineage(t)
		results := n.stored(t, streams.StreamResult)
		if len(results) != 60 {
			t.Errorf("%d results are stored, want 60", len(results))
		}
		n.stop()
	})
}

// TestCancelledEarly: the result of a run that was cancelled before its task was claimed is
// published by the node that handles the cancel, and by the node that claims the task if
// the result is not stored yet. Both may do so concurrently, so both publish the same
// result.
func TestCancelledEarly(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		n.intake() // it takes no tasks
		told := func() (out []*jetstream.RawStreamMsg) {
			for _, m := range n.stored(t, streams.StreamResult) {
				if m.Subject == "rath.run.default.r1.result" {
					out = append(out, m)
				}
			}
			return out
		}
		submit(t, nc, "hold", `{"id":"r1"}`)
		if a := ask(t, nc, "rath.ctl.default.anonymous.r1.cancel", `{"by":"ann","reason":"not needed"}`); a["done"] != true {
			t.Errorf("answer %v", a)
		}
		first := told()
		s, err := n.operator().Stream(t.Context(), streams.StreamResult)
		if err == nil {
			err = s.Purge(t.Context())
		}
		must.Do(t, err)
		time.Sleep(10 * time.Second)
		m := startNode(t, srv, "node-2")
		time.Sleep(2 * time.Second)
		second := told()
		m.stop()
		n.stop()
		if len(first) != 1 || len(second) != 1 {
			t.Fatalf("%d results were stored, then %d", len(first), len(second))
		}
		if a, b := first[0].Data, second[0].Data; !bytes.Equal(a, b) {
			t.Errorf("told first %s, then %s", a, b)
		}
	})
}

// TestCancelledNeverBegins cancels a run while a node brings its task to a log for the
// nodes of another pool. The node then freezes before it brings the cancel there: those
// nodes execute nothing.
func TestCancelledNeverBegins(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		var begun atomic.Int64
		cancelled := make(chan struct{})
		agent := flow.Registration{Name: "agent", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(_ context.Context, v session.Session) (session.Session, error) {
				begun.Add(1)
				return v, nil
			})
		}}
		b := startNodeWith(t, srv, "node-b", &spec{only: []flow.Registration{agent}, intake: func(in *dispatch.Intake) {
			in.Accept = func(context.Context, journal.Task) (journal.Answer, error) { return "", run.ErrBusy }
			in.Enqueue = func(context.Context, journal.Task, *journal.CancelRequested) error { return run.ErrBusy }
		}})
		a := startNodeWith(t, srv, "node-a", &spec{only: []flow.Registration{nap}, pool: "sleepers", intake: func(in *dispatch.Intake) {
			enqueue, signal := in.Enqueue, in.Signal
			in.Enqueue = func(ctx context.Context, k journal.Task, c *journal.CancelRequested) error {
				select {
				case <-cancelled:
					return enqueue(ctx, k, c)
				default:
					return run.ErrBusy
				}
			}
			in.Signal = func(ctx context.Context, s journal.Signal) error {
				time.Sleep(30 * time.Second)
				return signal(ctx, s)
			}
		}})
		submit(t, nc, "agent", `{"id":"r1","input":"hello"}`)
		time.Sleep(20 * time.Second) // both have had it
		if r := ask(t, nc, "rath.ctl.default.anonymous.r1.cancel", `{"reason":"not needed"}`); r["done"] != true {
			t.Fatalf("answer %v", r)
		}
		close(cancelled)
		if r := resultOf(t, nc, "r1"); r["state"] != "cancelled" || begun.Load() != 0 {
			t.Errorf("result %v after %d executions, want it cancelled without any", r, begun.Load())
		}
		time.Sleep(time.Minute)
		if left := b.stored(t, streams.StreamTasks); len(left) != 0 || begun.Load() != 0 {
			t.Errorf("%d tasks are left, %d executions", len(left), begun.Load())
		}
		a.stop()
		b.stop()
	})
}

// TestForkOverTaken submits a task that forks a session under a name. Between the check of
// the name and the claim, for which there is no slot, another task takes the name.
func TestForkOverTaken(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		free := make(chan struct{})
		n := startNodeWith(t, srv, "node-1", &spec{intake: func(in *dispatch.Intake) {
			accept := in.Accept
			in.Accept = func(ctx context.Context, k journal.Task) (journal.Answer, error) {
				select {
				case <-free:
				default:
					if k.ID == "r1" {
						return "", run.ErrBusy
					}
				}
				return accept(ctx, k)
			}
			leaves(in)
		}})
		submit(t, nc, "agent", `{"id":"r0","session":"talk","input":"hello"}`)
		succeeded(t, nc, "r0")
		submit(t, nc, "agent", `{"id":"r1","session":"other","fork_of":"talk:1","input":"in the fork"}`)
		time.Sleep(time.Second)
		submit(t, nc, "agent", `{"id":"r2","session":"other","input":"first"}`)
		succeeded(t, nc, "r2")
		close(free)
		if r := resultOf(t, nc, "r1"); r["state"] != "failed" || r["code"] != string(run.CodeMalformed) {
			t.Errorf("result %v of a fork over a session that is there, want it refused", r)
		}
		n.stop()
	})
}

// TestCancelUnknown cancels, if it was submitted, an id that was not submitted while tasks
// of others wait: the request is answered and leaves no trace, so that the id can be used.
// All requests except a cancel fail until a run has begun, with that reason.
func TestCancelUnknown(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		defer n.stop()
		submit(t, nc, "hold", `{"id":"r0"}`)
		time.Sleep(time.Second)
		n.intake() // it takes no more
		synctest.Wait()
		for i := range 5 {
			submit(t, nc, "agent", fmt.Sprintf(`{"id":"wait%d","input":"hello"}`, i))
		}
		before := len(n.stored(t, "KV_"+streams.BucketAlias))
		for _, id := range []string{"wait", "nobody"} {
			if a := ask(t, nc, "rath.ctl.default.anonymous."+id+".cancel", `{"reason":"mistyped","submitted":true}`); a["code"] != string(run.CodeUnknownRun) {
				t.Errorf("cancel %s: %v", id, a)
			}
			if a := ask(t, nc, "rath.ctl.default.anonymous."+id+".message", `{"text":"hello"}`); a["code"] != string(run.CodeUnknownRun) {
				t.Errorf("message to %s: %v", id, a)
			}
		}
		for subject, body := range map[string]string{
			"rath.ctl.default.anonymous.%s.message": `{"text":"hello"}`, "rath.ctl.default.anonymous.%s.resolve": `{"decision":"again","reason":"seen"}`, "rath.ctl.default.anonymous.%s.approve": `{"step":"0"}`,
			"rath.ctl.default.anonymous.%s.quarantine": `{"reason":"odd"}`, "rath.ctl.default.anonymous.%s.rerun": `{}`, "rath.query.default.replay": `{"run":"%s"}`,
		} {
			for id, want := range map[string]run.Code{"wait4": run.CodeState, "nobody": run.CodeUnknownRun} {
				at, says := strings.Replace(subject, "%s", id, 1), strings.Replace(body, "%s", id, 1)
				a := ask(t, nc, at, says)
				if a["code"] != string(want) || want == run.CodeState && !strings.Contains(a["error"].(string), "its task waits for a node") {
					t.Errorf("%s %s: %v, want code %s", at, says, a, want)
				}
			}
		}
		if a := ask(t, nc, "rath.query.default.run", `{"run":"wait4","all":true}`); a["state"] != string(run.Queued) || a["session"] != nil {
			t.Errorf("how the last one that waits stands: %v", a)
		}
		for body, id := range map[string]string{`{"run":"wait4"}`: "wait4", `{"run":"nobody","all":true}`: "nobody"} {
			if a := ask(t, nc, "rath.query.default.run", body); a["code"] != string(run.CodeUnknownRun) {
				t.Errorf("how %s stands: %v", id, a)
			}
		}
		if a := ask(t, nc, "rath.ctl.default.anonymous.wait4.cancel", `{"submitted":true}`); a["done"] != true {
			t.Errorf("cancel the last one that waits: %v", a)
		}
		if after := len(n.stored(t, "KV_"+streams.BucketAlias)); after != before+1 {
			t.Errorf("%d entries in the bucket of aliases became %d, want one more, of the task that waits", before, after)
		}
		if got := n.stored(t, streams.StreamResult); len(got) != 1 || got[0].Subject != "rath.run.default.wait4.result" {
			t.Errorf("%d results are stored, want that of the task that waits", len(got))
		}
		m := startNode(t, srv, "node-2")
		defer m.stop()
		h := listen(t, nc, "nobody")
		submit(t, nc, "agent", `{"id":"nobody","input":"hello"}`)
		close(n.hold)
		if r := next(t, h.results, "result"); r["state"] != "succeeded" {
			t.Errorf("a run of an id that was cancelled before anybody used it: %v", r)
		}
	})
}

// TestLineageWithoutCheckpoint loses the checkpoints, and one that names a
// record which LINEAGE does not hold.
func TestLineageWithoutCheckpoint(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, n *node){
		"lost": func(t *testing.T, n *node) {
			for _, m := range n.stored(t, streams.StreamSnap) {
				s := must.Get(n.operator().Stream(t.Context(), streams.StreamSnap))(t)
				must.Do(t, s.DeleteMsg(t.Context(), m.Sequence))
			}
		},
		"wrong": func(t *testing.T, n *node) {
			// They name the ends of the streams, but not their contents.
			at := len(n.stored(t, streams.StreamLineage))
			for _, m := range n.stored(t, streams.StreamSnap) {
				var p uint32
				if strings.HasSuffix(m.Subject, "1") {
					p = 1
				}
				events := n.stored(t, streams.EventStream(n.conn.Streams.Generation(), p))
				body := fmt.Sprintf(`{"at":%d,"seq":9999,"k":1,"token":%d}`, at, events[len(events)-1].Sequence)
				must.Get(n.operator().Publish(t.Context(), m.Subject, []byte(body)))(t)
			}
		},
		"of another release": func(t *testing.T, n *node) {
			// They match the streams, and hold the open runs in another format.
			spoiled := 0
			for _, m := range n.stored(t, streams.StreamSnap) {
				var fields map[string]json.RawMessage
				if json.Unmarshal(m.Data, &fields) != nil || fields["pages"] == nil {
					continue
				}
				fields["open"], fields["format"] = fields["pages"], json.RawMessage("99")
				delete(fields, "pages")
				body, err := json.Marshal(fields)
				if err == nil {
					_, err = n.operator().Publish(t.Context(), m.Subject, body)
				}
				must.Do(t, err)
				spoiled++
			}
			if spoiled == 0 {
				t.Error("there is no checkpoint of open runs")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
				n := startNode(t, srv, "node-1")
				n.submitted(t, nc, 0, 20)
				ended(t, nc, 0, 20)
				time.Sleep(2 * time.Second)
				n.stop()

				n = startNode(t, srv, "node-2")
				for i := range 4 {
					submit(t, nc, "hold", fmt.Sprintf(`{"id":"open%d"}`, i))
				}
				time.Sleep(2 * time.Second)
				n.cancelRelay()
				spoil(t, n)
				n.kill()

				n = startNode(t, srv, "node-3")
				close(n.hold)
				for i := range 4 {
					succeeded(t, nc, fmt.Sprintf("open%d", i))
				}
				n.submitted(t, nc, 20, 25)
				ended(t, nc, 20, 25)
				time.Sleep(time.Second)
				n.checkLineage(t)
				n.stop()
			})
		})
	}
}

// cancelRelay ends the background work of the node.
func (n *node) cancelRelay() {
	n.cancel()
	n.work.Wait()
}

// TestForeignBytes puts messages that are no commits on event subjects: every reader skips
// them.
func TestForeignBytes(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		h := listen(t, nc, "r1")
		submit(t, nc, "agent", `{"id":"r1","session":"talk","input":"one"}`)
		r := next(t, h.results, "result")
		k := session.Key{Tenant: session.DefaultTenant, ID: session.ID(r["session"].(string))}
		_, subject := must.Pair(eventlog.EventSubject(k))(t)
		js := n.operator()
		for _, body := range []string{"not JSON", `{"epoch":1,"events":[],"format":1}`} {
			must.Get(js.Publish(t.Context(), subject, []byte(body)))(t)
		}
		// A session's name that no generator made, and one of another partition.
		for _, s := range []string{"rath.ev.1.0.default.x", "rath.ev.1.0.default.a.b", "rath.ev.1.0.default.s-1-1"} {
			must.Get(js.Publish(t.Context(), s, []byte("junk")))(t)
		}
		time.Sleep(time.Second)
		n.stop()

		n = startNode(t, srv, "node-2") // and its relay meets them first
		h = listen(t, nc, "r2")
		submit(t, nc, "agent", `{"id":"r2","session":"talk","input":"two"}`)
		if r := next(t, h.results, "result"); r["state"] != "succeeded" || r["output"] != "echo: two" {
			t.Errorf("result %v", r)
		}
		time.Sleep(time.Second)
		n.checkLineage(t)
		n.stop()
	})
}

// TestTwoRelays runs two nodes, which both relay all partitions: readers see
// each record once.
func TestTwoRelays(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		a, b := startNode(t, srv, "node-a"), startNode(t, srv, "node-b")
		a.submitted(t, nc, 0, 20)
		ended(t, nc, 0, 20)
		time.Sleep(time.Second)
		_, want := a.records(t)
		var read lineage.Cursor
		have := map[string]int{}
		for _, m := range a.told(t) {
			for _, r := range m.records {
				if read.Take(&r) {
					have[place(&r)]++
				}
			}
		}
		slices.Sort(want)
		if diff := gocmp.Diff(want, slices.Sorted(maps.Keys(have))); diff != "" {
			t.Errorf("lineage (-event streams +readers):\n%s", diff)
		}
		for r, n := range have {
			if n != 1 {
				t.Errorf("%d times: %s", n, r)
			}
		}
		b.stop()
		a.stop()
	})
}

// TestNodeOutlivesCuts breaks the node's connection again and again while runs
// are under way.
func TestNodeOutlivesCuts(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		for i := range 8 {
			n.submitted(t, nc, 5*i, 5*i+5)
			time.Sleep(time.Duration(i) * time.Millisecond)
			must.Do(t, n.conn.Cut())
			time.Sleep(time.Second)
		}
		ended(t, nc, 0, 40)
		time.Sleep(30 * time.Second)
		n.checkLineage(t)
		for _, stream := range []string{streams.StreamTasks, streams.StreamDLQ} {
			for _, m := range n.stored(t, stream) {
				t.Errorf("left in %s: %s %s", stream, m.Subject, m.Data)
			}
		}
		n.stop()
	})
}

// TestSpilledCommits relays commits whose data lies in blobs.
func TestSpilledCommits(t *testing.T) {
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		h := listen(t, nc, "r1")
		words := strings.Repeat("many words ", 15_000)
		submit(t, nc, "agent", fmt.Sprintf(`{"id":"r1","input":%q}`, words))
		r := next(t, h.results, "result")
		if out, _ := r["output"].(string); r["state"] != "succeeded" || !strings.HasPrefix(out, "echo: many words") || len(out) > journal.MaxOutput {
			t.Errorf("state %v, %d bytes of output", r["state"], len(out))
		}
		for e := (object{}); e["kind"] != "ended"; {
			e = next(t, h.events, "end")
		}
		time.Sleep(time.Second)
		n.checkLineage(t)
		spilled := false
		for p := range n.conn.Streams.Partitions() {
			for _, m := range n.stored(t, streams.EventStream(n.conn.Streams.Generation(), p)) {
				spilled = spilled || strings.Contains(string(m.Data), `"blob":{"digest"`)
			}
		}
		if !spilled {
			t.Error("no commit spilled: the test shows nothing")
		}
	})
}

// TestRelayAfterRest resumes a session after relays have forgotten the position of its log:
// no record is missing, and none is repeated.
func TestRelayAfterRest(t *testing.T) {
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		for i := range 3 {
			id := fmt.Sprint("r", i)
			submit(t, nc, "agent", fmt.Sprintf(`{"id":%q,"session":"talk","input":"number %d"}`, id, i))
			succeeded(t, nc, id)
			time.Sleep(3 * time.Minute)
		}
		n.checkLineage(t)
	})
}

// TestHistoryThatWasPurged has the last messages of each event stream removed that
// came after the open set was saved: the next relay does not wait for them.
func TestHistoryThatWasPurged(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		a := startNodeWith(t, srv, "node-a", &spec{slots: 1})
		submit(t, nc, "hold", `{"id":"holds"}`)
		time.Sleep(time.Second)
		submit(t, nc, "agent", `{"id":"waits","input":"x"}`)
		time.Sleep(time.Second)
		a.stop()
		js := a.operator()
		for p := range a.conn.Streams.Partitions() {
			stream, subject := fmt.Sprintf("EV_1_%d", p), fmt.Sprintf("rath.ev.1.%d.default.foreign", p)
			_, err := js.Publish(t.Context(), subject, []byte("x"))
			must.Do(t, err)
			s, err := js.Stream(t.Context(), stream)
			if err == nil {
				err = s.Purge(t.Context(), jetstream.WithPurgeSubject(subject))
			}
			must.Do(t, err)
		}
		b := startNode(t, srv, "node-b")
		began := time.Now()
		if r := resultOf(t, nc, "waits"); r["state"] != "succeeded" || time.Since(began) > 10*time.Second {
			t.Errorf("result %v after %v", r, time.Since(began))
		}
		b.stop()
	})
}
