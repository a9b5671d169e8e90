package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

// What show may take of a run of 1,000 steps, at a node that runs.
const (
	shownSteps  = 1000
	shownWithin = 200 * time.Millisecond
)

// BenchmarkShow fails if a form of show takes longer than its limit.
func BenchmarkShow(b *testing.B) {
	dir := b.TempDir()
	b.Chdir(dir)
	n, err := node.Start(b.Context(), &node.Options{Store: dir, Port: -1, Level: "lazy", Workflows: []flow.Registration{{
		Name: "long", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				for i := range shownSteps {
					if _, err := flow.Do(ctx, "part", func(context.Context) (int, error) { return i, nil }, nil); err != nil {
						return s, err
					}
					s = s.With(session.AssistantText(fmt.Sprintf("part %d is done", i)))
				}
				return s, nil
			})
		},
	}}})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	c, err := client.Connect(b.Context(), n.URL(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if r, err := c.Do(b.Context(), "long", messages.Task{ID: "long"}, nil); err != nil || r.Err() != nil {
		b.Fatal(err, r.Err())
	}
	for _, form := range []string{"", " --steps", " --steps 400..440", " --last 10", " --spent", " --tree"} {
		b.Run(cmp.Or(strings.TrimSpace(form), "transcript"), func(b *testing.B) {
			for b.Loop() {
				var out, errs bytes.Buffer
				args := strings.Fields("rath show long --server " + n.URL() + form)
				if code := execute(args, strings.NewReader(""), &out, &errs, func(string) string { return "" }); code != 0 {
					b.Fatalf("exit %d: %s", code, errs.String())
				}
			}
			if own := b.Elapsed() / time.Duration(b.N); own > shownWithin {
				b.Errorf("%s of a run of %d steps, want at most %s", own, shownSteps, shownWithin)
			}
		})
	}
}
