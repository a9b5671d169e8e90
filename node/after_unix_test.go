//go:build unix

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// jobs has a workflow that notes its begin and its end. With the input "stay" its first
// attempt ends with its node, and with "ask" it waits for an answer.
func jobs() []flow.Registration {
	return []flow.Registration{{Name: "job", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			i, _ := flow.RunInfo(ctx)
			step := func(what string) error {
				_, err := flow.Do(ctx, what, func(context.Context) (bool, error) { return true, note(what + " " + string(i.Run)) }, tool.Idempotent)
				return err
			}
			if err := step("begin"); err != nil {
				return s, err
			}
			switch string(i.Input) {
			case `"stay"`:
				if i.Attempt == 1 {
					<-ctx.Done()
					return s, ctx.Err()
				}
			case `"ask"`:
				if _, err := flow.Await[string](ctx, "go on?", nil); err != nil {
					return s, err
				}
			}
			return s, step("end")
		})
	}}}
}

// TestPredecessorKilled kills the node, with kill -9, that has a run which others wait for,
// or that is about to tell them its end. They begin on another node, after the end.
func TestPredecessorKilled(t *testing.T) {
	const runs = 20
	for _, input := range []string{"stay", "ask"} {
		t.Run(input, func(t *testing.T) {
			w := newVictim(t, "jobs")
			c := w.client(t, "job")
			must.Get(c.Submit(t.Context(), "job", messages.Task{ID: "first", Input: json.RawMessage(`"` + input + `"`)}))(t)
			for !strings.Contains(w.noted(t), "begin first") {
				time.Sleep(time.Millisecond)
			}
			if input == "stay" { // else the node that is killed is the only one until then
				member(t, w.srv, Options{Fleet: Fleet{Gossip: w.gossip(w.at())}, Workflows: jobs()})
			}
			id := func(n int) run.ID { return run.ID(fmt.Sprint("next-", n)) }
			for n := range runs {
				task := messages.Task{ID: id(n), After: []run.ID{"first"}}
				if n%2 == 1 {
					task.After, task.AfterAny = nil, task.After
				}
				must.Get(c.Submit(t.Context(), "job", task))(t)
			}
			for n := range runs {
				inState(t, c, id(n), run.Queued)
			}
			if input == "ask" {
				goOnWith(t, c, "first")
				for !strings.Contains(w.noted(t), "end first") {
					time.Sleep(time.Millisecond)
				}
			}
			w.kill(t)
			if input == "ask" {
				member(t, w.srv, Options{Fleet: Fleet{Gossip: w.gossip(w.at())}, Workflows: jobs()})
			}
			for n := range runs {
				ended(t, c, id(n), run.Succeeded, "", "")
			}
			ended(t, c, "first", run.Succeeded, "", "")
			over, begun := false, map[string]int{}
			for line := range strings.Lines(w.noted(t)) {
				switch what, id, _ := strings.Cut(strings.TrimSpace(line), " "); {
				case what == "end" && id == "first":
					over = true
				case what == "begin" && id != "first":
					if begun[id]++; !over {
						t.Errorf("%s began before the end of the run that it waits for", id)
					}
					// A node that is killed can leave a step that another one repeats.
					if input == "stay" && begun[id] > 1 {
						t.Errorf("%s began twice", id)
					}
				}
			}
			if len(begun) != runs {
				t.Errorf("%d runs began, want %d", len(begun), runs)
			}
		})
	}
}
