package engine_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestRequestsOfCutOffCall: the network requests of a call are recorded although the run
// is cancelled before the call ends, or released because the node stops: the call is then
// left open, or repeated, and its requests are evidence beside it.
func TestRequestsOfCutOffCall(t *testing.T) {
	for _, tt := range []struct {
		name, network, kind string
		state               run.State
	}{
		{"cancelled", "list:example.org", journal.KindStepCompleted, run.Cancelled},
		{"cancelled, reading", "read_only:example.org", journal.KindLate, run.Cancelled},
		{"given back", "list:example.org", journal.KindLate, run.Queued},
		{"given back, reading", "read_only:example.org", journal.KindLate, run.Queued},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w world
			r := rooms(false)
			rt := w.placedRuntime(t, r, blob.NewMemory())
			driving, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			asking := tool.Func("ask", "Asks over the network.", func(ctx context.Context, _ struct{}) (string, error) {
				c, _ := tool.Current(ctx)
				if _, err := c.Sandbox(ctx); err != nil {
					return "", err
				}
				opened, _ := r.Opened()
				ours, theirs := net.Pipe()
				opened[len(opened)-1].Proxy(theirs)
				_, err := fmt.Fprint(ours, "GET http://elsewhere.net/path HTTP/1.1\r\nHost: elsewhere.net\r\nConnection: close\r\n\r\n")
				if err == nil {
					_, err = http.ReadResponse(bufio.NewReader(ours), nil)
				}
				if err := errors.Join(err, ours.Close()); err != nil {
					return "", err
				}
				if tt.state == run.Queued {
					stop(run.ErrShutdown)
				} else {
					cancel := journal.Signal{To: home, Run: "r", Cancel: &journal.CancelRequested{Reason: "enough"}}
					if err := rt.Runtime.Store.Apply(context.WithoutCancel(ctx), cancel); err != nil {
						return "", err
					}
				}
				<-ctx.Done()
				return "", context.Cause(ctx)
			}, &tool.FuncOptions{Effect: tool.Sandboxed})
			ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
				s, r, err := flow.CallTool(ctx, s, asking, struct{}{})
				if err == nil && r.IsError {
					err = fmt.Errorf("%s", r.Body)
				}
				return s, err
			}, func(task *journal.Task) {
				task.Sandbox = journal.Sandbox{Backend: "local", Network: tt.network}
			})
			forward(t, driving, ex, tt.state)
			var told []journal.NetworkRequest
			for _, d := range facts[journal.StepCompleted](t, &w, tt.kind) {
				told = append(told, d.Requests...)
			}
			if len(told) != 1 || told[0].Host != "elsewhere.net" || told[0].Refused == "" {
				t.Errorf("the log tells of %+v", told)
			}
		})
	}
}
