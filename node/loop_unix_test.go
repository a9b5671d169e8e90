//go:build unix

package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestLoop kills a node, with kill -9, in a conversation: another one goes on after the last
// iteration that ended. The conversation fails, and is resumed at the iteration that failed.
func TestLoop(t *testing.T) {
	w := newVictim(t, "talks")
	c := w.client(t, "talk")
	must.Get(c.Submit(t.Context(), "talk", messages.Task{ID: "talk-1"}))(t)
	hears := func(id run.ID, step run.Path) {
		t.Helper()
		for {
			i, err := c.Runs.Get(t.Context(), id)
			if err == nil && i.State == run.Waiting && len(i.Waits) == 1 && i.Waits[0].Step == step {
				return
			}
			if err == nil && i.State.Terminal() || t.Context().Err() != nil {
				t.Fatalf("the run is %s at %+v, want it to wait at step %s: %v", i.State, i.Waits, step, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	say := func(id run.ID, text string) {
		t.Helper()
		must.Do(t, c.Runs.Message(t.Context(), id, messages.Control{Text: text}))
	}
	hears("talk-1", "0.0.0")
	say("talk-1", "one")
	hears("talk-1", "0.1.0")
	say("talk-1", "two")
	hears("talk-1", "0.2.0")
	w.kill(t)
	member(t, w.srv, Options{Fleet: Fleet{Gossip: w.gossip(w.at())}, Workflows: talking()})
	say("talk-1", "three")
	hears("talk-1", "0.3.0")
	replay := must.Get(c.Runs.Replay(t.Context(), "talk-1"))(t)
	if !replay.Matches {
		t.Errorf("a replay: %+v", replay)
	}
	say("talk-1", "fail")
	if r := must.Get(c.Wait(t.Context(), "talk-1"))(t); r.State != run.Failed || !strings.Contains(r.Error, "it fails") {
		t.Errorf("the conversation: %+v", r)
	}
	next := must.Get(c.Runs.Resume(t.Context(), "talk-1", messages.Control{}))(t)
	hears(next, "0.3.0")
	say(next, "bye")
	if r := must.Get(c.Wait(t.Context(), next))(t); r.State != run.Succeeded || r.Output != "one two three bye" {
		t.Errorf("the resumed conversation: %+v", r)
	}
	replay = must.Get(c.Runs.Replay(t.Context(), next))(t)
	if !replay.Matches {
		t.Errorf("a replay of the resumed one: %+v", replay)
	}
	from := messages.Control{Step: "0.9"}
	if _, err := c.Runs.Resume(t.Context(), "talk-1", from); !errors.Is(err, run.ErrMalformed) {
		t.Errorf("a resumption at an iteration after the last: %v", err)
	}
}
