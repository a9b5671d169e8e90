package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
	"github.com/rathcluster/rath/workspace"
)

const (
	nextRunFiles = 2000
	// nextRunBar is the part of the time of a session's first command that the first
	// command of its next run on the node may take.
	nextRunBar = 1.0 / 3
)

// BenchmarkNextRun has two runs of one session each run a command in a workspace of 2,000
// files: the first has to open the sandbox, and the second finds it open. It fails where
// the second takes more than its part of the first.
func BenchmarkNextRun(b *testing.B) {
	shell, ok := tool.ByName("run_shell_command")
	if !ok {
		b.Fatal("there is no shell")
	}
	var took time.Duration // the last call; runs follow each other
	w := flow.Registration{Name: "command", Revision: "1", Description: "Runs a command.", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			began := time.Now()
			s, r, err := flow.CallTool(ctx, s, shell, map[string]string{"cmd": "true"})
			if took = time.Since(began); err == nil && r.IsError {
				err = fmt.Errorf("the command: %s", r.Body)
			}
			return s, err
		})
	}}
	n := must.Get(node.Start(b.Context(), &node.Options{Store: b.TempDir(), NATS: node.NATS{Port: -1}, Workflows: []flow.Registration{w}}))(b)
	defer n.Close()
	c := must.Get(n.Client(b.Context()))(b)
	defer c.Close()
	dir := b.TempDir()
	for i := range nextRunFiles {
		must.Do(b, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d.txt", i)), fmt.Appendf(nil, "file %d\n", i), 0o644))
	}
	head := must.Get(workspace.Snapshot(b.Context(), n.Blobs(session.DefaultTenant), dir, blob.Digest{}, workspace.Limits{}))(b)
	command := func(t messages.Task) time.Duration {
		must.Get(c.Submit(b.Context(), "command", t))(b)
		r, err := c.Wait(b.Context(), t.ID)
		if err != nil || r.State != run.Succeeded {
			b.Fatalf("run %s %s: %s, %v", t.ID, r.State, r.Error, err)
		}
		return took
	}
	var first, second []time.Duration
	i := 0
	for b.Loop() {
		i++
		name := fmt.Sprint("s", i)
		first = append(first, command(messages.Task{ID: run.ID(fmt.Sprint("one", i)), Session: name, Workspace: head.String()}))
		second = append(second, command(messages.Task{ID: run.ID(fmt.Sprint("two", i)), Session: name}))
	}
	median := func(d []time.Duration) time.Duration { slices.Sort(d); return d[len(d)/2] }
	opens, finds := median(first), median(second)
	part := float64(finds) / float64(opens)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(opens.Microseconds())/1e3, "ms/opens")
	b.ReportMetric(float64(finds.Microseconds())/1e3, "ms/finds")
	b.ReportMetric(part, "part")
	if part > nextRunBar {
		b.Errorf("the first command of the next run takes %.2f of that of the first one (%v of %v), the bar is %.2f", part, finds, opens, nextRunBar)
	}
}
