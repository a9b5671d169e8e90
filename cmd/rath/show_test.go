package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Limits of commands about a run of 1,000 steps, at a node that runs, and of one that
// needs no system.
const (
	longSteps      = 1000
	shownWithin    = 200 * time.Millisecond
	exportedWithin = time.Second
	startsWithin   = 50 * time.Millisecond
)

// longRun returns the address of a node with the run "long", until the benchmark ends.
func longRun(b *testing.B) (server string) {
	dir := b.TempDir()
	b.Chdir(dir)
	n := must.Get(node.Start(b.Context(), &node.Options{Store: dir, NATS: node.NATS{Port: -1, Level: "lazy"}, Workflows: []flow.Registration{{
		Name: "long", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				for i := range longSteps {
					if _, err := flow.Do(ctx, "part", func(context.Context) (int, error) { return i, nil }, tool.NonIdempotent); err != nil {
						return s, err
					}
					s = s.With(session.AssistantText(fmt.Sprintf("part %d is done", i)))
				}
				return s, nil
			})
		},
	}}}))(b)
	b.Cleanup(func() { n.Close() })
	c := must.Get(client.Connect(b.Context(), n.URL(), nil))(b)
	defer c.Close()
	if r, err := c.Do(b.Context(), "long", messages.Task{ID: "long"}, nil); err != nil || r.Err() != nil {
		b.Fatal(err, r.Err())
	}
	return n.URL()
}

// within measures a command line and fails if it takes longer on average.
func within(b *testing.B, limit time.Duration, line string) {
	b.Helper()
	for b.Loop() {
		var out, errs bytes.Buffer
		if code := execute(strings.Fields(line), strings.NewReader(""), &out, &errs, func(string) string { return "" }); code != 0 {
			b.Fatalf("exit %d: %s", code, errs.String())
		}
	}
	if own := b.Elapsed() / time.Duration(b.N); own > limit {
		b.Errorf("%s takes %s, want at most %s", line, own, limit)
	}
}

// BenchmarkShow fails if a form of show takes longer than its limit.
func BenchmarkShow(b *testing.B) {
	server := longRun(b)
	for _, form := range []string{"", " --steps", " --steps 400..440", " --last 10", " --spent", " --tree"} {
		b.Run(cmp.Or(strings.TrimSpace(form), "transcript"), func(b *testing.B) {
			within(b, shownWithin, "rath show long --server "+server+form)
		})
	}
}

// BenchmarkExport fails if a form of export takes longer than its limit.
func BenchmarkExport(b *testing.B) {
	server := longRun(b)
	for _, form := range []string{"", " --dossier html", " --dossier md", " --dossier json"} {
		b.Run(cmp.Or(strings.TrimSpace(form), "session"), func(b *testing.B) {
			within(b, exportedWithin, "rath export long --server "+server+form)
		})
	}
}

// BenchmarkVersion fails if a process of the command takes longer than its limit until
// it has written its version, which needs no system.
func BenchmarkVersion(b *testing.B) {
	self := must.Get(os.Executable())(b)
	for b.Loop() {
		cmd := exec.CommandContext(b.Context(), self, "version")
		cmd.Env = append(os.Environ(), asCommand+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	if own := b.Elapsed() / time.Duration(b.N); own > startsWithin {
		b.Errorf("version takes %s, want at most %s", own, startsWithin)
	}
}
