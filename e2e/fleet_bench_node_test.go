//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof" // for profiles of the nodes
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func init() { children["bench-node"] = benchNode }

// statsPort is the port at which a node of a benchmark serves its statistics and pprof.
const statsPort = "6060"

// stats are these statistics.
type stats struct {
	Goroutines int    `json:"goroutines"`
	Heap       uint64 `json:"heap"`
}

// benchNode is a node with the workflows of the benchmarks. The input of each
// is a number.
func benchNode() error {
	http.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		_ = json.NewEncoder(w).Encode(stats{runtime.NumGoroutine(), m.HeapAlloc}) // the reader sees it
	})
	var host string
	for i, arg := range os.Args[:len(os.Args)-1] {
		if arg == "-health" {
			var err error
			if host, _, err = net.SplitHostPort(os.Args[i+1]); err != nil {
				return err
			}
		}
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, statsPort))
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // ends with the process

	agent := &flow.Agent{Name: "agent", Provider: llm.Provider{Kind: "openai", Model: "m"}}
	counted := func(name string, forward func(ctx context.Context, s session.Session, n int) (session.Session, error)) flow.Registration {
		return flow.Registration{Name: name, Revision: "1", Description: "Load of the benchmarks.", NewFor: func(in flow.Info) (flow.Workflow, error) {
			n := 1
			if len(in.Input) > 0 {
				if err := json.Unmarshal(in.Input, &n); err != nil {
					return nil, err
				}
			}
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) { return forward(ctx, s, n) }), nil
		}}
	}
	node.Main(
		// n model calls, one after the other.
		counted("calls", func(ctx context.Context, s session.Session, n int) (session.Session, error) {
			var err error
			for i := range n {
				if s, err = agent.Forward(ctx, s.With(session.UserText("turn "+strconv.Itoa(i)))); err != nil {
					return s, err
				}
			}
			return s, nil
		}),
		// n model calls on as many branches.
		counted("branches", func(ctx context.Context, s session.Session, n int) (session.Session, error) {
			var all []flow.Branch
			for i := range n {
				name := "b" + strconv.Itoa(i)
				all = append(all, flow.Branch{Name: name, Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
					return agent.Forward(ctx, s.With(session.UserText(name)))
				})})
			}
			j, err := flow.FanOut(ctx, s, all, nil)
			if err != nil {
				return s, err
			}
			if got := len(j.Succeeded()); got != n {
				return s, fmt.Errorf("%d of %d branches succeeded", got, n)
			}
			return flow.Merge(ctx, j, flow.SinceAncestor())
		}),
		// n durable steps without work.
		counted("steps", func(ctx context.Context, s session.Session, n int) (session.Session, error) {
			for i := range n {
				if _, err := flow.Do(ctx, "step", func(context.Context) (int, error) { return i, nil }, tool.Idempotent); err != nil {
					return s, err
				}
			}
			return s, nil
		}),
		// A question to the user.
		counted("question", func(ctx context.Context, s session.Session, _ int) (session.Session, error) {
			a, err := flow.Approve(ctx, "May it go on?", nil)
			return s.With(session.UserText(fmt.Sprint(a.Approved))), err
		}),
	)
	return nil
}
