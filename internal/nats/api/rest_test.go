package api_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/session"
)

// TestWaitingRunsHoldNothing has two nodes ask a person in many runs. Once
// their sessions are passivated the nodes and the server have the goroutines
// and the consumers that they had after a few.
func TestWaitingRunsHoldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		question := flow.Registration{Name: "question", Description: "asks", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
				_, err := flow.Approve(ctx, "May I?", nil)
				return v, err
			})
		}}
		var nodes []*node
		for i := range 2 {
			nodes = append(nodes, startNodeWith(t, srv, fmt.Sprint("node-", i), &spec{more: []flow.Registration{question}, members: newMembers()}))
		}
		nc := guest(t, srv)
		_, js := operatorOf(t, srv)
		rest := func() (goroutines, consumers int) {
			t.Helper()
			time.Sleep(3 * time.Minute)
			goroutines = runtime.NumGoroutine()
			for range 50 { // between two requests for messages there are more
				time.Sleep(37 * time.Millisecond)
				synctest.Wait()
				goroutines = min(goroutines, runtime.NumGoroutine())
			}
			all := js.ListStreams(t.Context())
			for s := range all.Info() {
				consumers += s.State.Consumers
			}
			if all.Err() != nil {
				t.Fatal(all.Err())
			}
			return goroutines, consumers
		}
		asked := 0
		ask := func(n int) {
			for range n {
				submit(t, nc, "question", fmt.Sprintf(`{"id":"r%d"}`, asked))
				asked++
			}
			time.Sleep(10 * time.Second)
			active := 0
			for _, n := range nodes {
				active += n.sys.Active()
			}
			if active < n {
				t.Fatalf("%d of %d sessions are in memory: the test shows nothing", active, n)
			}
		}
		ask(10)
		goroutines, consumers := rest()
		ask(300)
		more, moreConsumers := rest()
		// The server flushes some streams in the background, one goroutine each.
		const flushers = 3
		if more > goroutines+flushers {
			var text bytes.Buffer
			must.Report(t, pprof.Lookup("goroutine").WriteTo(&text, 1))
			t.Errorf("300 waiting runs hold %d goroutines more than %d:\n%.4000s", more-goroutines, goroutines, &text)
		}
		if moreConsumers > consumers {
			t.Errorf("300 waiting runs hold %d consumers more than %d", moreConsumers-consumers, consumers)
		}
		for _, n := range nodes {
			if n.sys.Active() > 0 {
				t.Errorf("%d sessions are in memory", n.sys.Active())
			}
			n.stop()
		}
	})
}
