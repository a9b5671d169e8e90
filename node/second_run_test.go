package node

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestSecondRunHasSandbox compares the first commands of two runs of a session.
func TestSecondRunHasSandbox(t *testing.T) { secondRun(t, "local", Options{}) }

// secondRun has sessions run twice on a node, each run with one command, and compares
// the fastest command of the first runs, which open the sandbox, with the fastest of
// the second runs, which find it open. Each includes its step's records and snapshot.
func secondRun(t *testing.T, backend string, o Options) {
	const (
		sessions, most = 5, 40 // up to most on a machine with other work, which slows down single ones
		least          = 2     // times faster
	)
	took := make(chan time.Duration, 1)
	timed := flow.Registration{Name: "timed", Revision: "1", NewFor: func(o flow.Info) (flow.Workflow, error) {
		var cmd string
		if err := json.Unmarshal(o.Input, &cmd); err != nil {
			return nil, err
		}
		shell, _ := tool.ByName(tool.RunShellCommand)
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			began := time.Now()
			s, r, err := flow.CallTool(ctx, s, shell, map[string]string{"cmd": cmd})
			took <- time.Since(began)
			if err == nil && r.IsError {
				err = fmt.Errorf("the command: %s", r.Body)
			}
			return s, err
		}), nil
	}}
	o.Workflows = []flow.Registration{timed}
	srv := natstest.Start(t, &natsserver.Options{Port: -1})
	c := must.Get(member(t, srv, o).Client(t.Context()))(t)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first := func(id, home string) time.Duration {
		t.Helper()
		ask := messages.Task{ID: run.ID(id), Session: home, Input: []byte(`"echo x >> log"`), Sandbox: messages.Sandbox{Backend: backend}}
		must.Get(c.Submit(ctx, "timed", ask))(t)
		if r, err := c.Wait(ctx, ask.ID); err != nil || r.State != run.Succeeded {
			t.Fatalf("the run %s %s %s: %v", id, r.State, r.Error, err)
		}
		return <-took
	}
	first("before", "before") // warm up: the node's one-time work is not measured
	cold, warm := time.Hour, time.Hour
	for i := 0; i < sessions || i < most && cold < least*warm; i++ {
		home := fmt.Sprintf("s%d", i)
		cold = min(cold, first(home+"-one", home))
		warm = min(warm, first(home+"-two", home))
	}
	t.Logf("%s: the first command of a session's first run %v, of its second %v: %.1f times", backend, cold, warm, float64(cold)/float64(warm))
	if cold < least*warm {
		t.Errorf("the second is not %d times as fast", least)
	}
}
