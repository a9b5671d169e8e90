package view

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// turn is an uninterrupted series of actions of one agent or tool.
type turn struct {
	session session.ID
	run     run.ID
	actor   string
	version session.Version
	acts    []string
	right   []string
	said    string
	failed  bool
}

// act adds an action to the actor's turn, or starts a new turn. Without an actor the
// action belongs to the next actor.
func (t *Timeline) act(r *messages.Record, th *thread, actor, text, right string) {
	if u := t.turn; u == nil || u.session != r.Session || u.run != r.Run || u.actor != actor && u.actor != "" && actor != "" || u.said != "" {
		t.close()
		t.turn = &turn{session: r.Session, run: r.Run, actor: actor}
	}
	u := t.turn
	u.actor, u.version = cmp.Or(u.actor, actor), th.version
	u.failed = u.failed || r.Failed()
	if text != "" && !slices.Contains(u.acts, text) {
		u.acts = append(u.acts, text)
	}
	if right != "" {
		u.right = append(u.right, right)
	}
}

func (t *Timeline) model(r *messages.Record, th *thread) {
	t.asked[StepKey{r.Run, r.Step}] = r.Actor()
	th.speaker = r.Actor()
	switch {
	case r.Failed():
		t.act(r, th, r.Actor(), r.Action(), "")
		t.close()
	case r.Calls > 0:
		t.act(r, th, r.Actor(), "", "")
	case r.Again != "":
		t.act(r, th, r.Actor(), r.Action(), "")
	default:
		t.act(r, th, r.Actor(), "", "")
		t.turn.said = strings.TrimPrefix(r.Action(), "says ")
		// The answer of an agent without other actions may be a verdict: its line
		// waits for the branch's outcome.
		if th.depth == 0 || len(t.turn.acts) > 0 {
			t.close()
		}
	}
}

func (t *Timeline) tool(ctx context.Context, r *messages.Record, th *thread) {
	actor := r.Agent
	if actor == "" {
		actor = t.asked[StepKey{r.Run, r.Step.Parent()}]
	}
	text, right := strings.TrimPrefix(r.Action(), r.Tool+" "), ""
	called := actor == ""
	if called {
		if actor = r.Tool; r.Effect == "sandboxed" {
			actor = "sandbox"
		}
	}
	if t.Details != nil && !r.Failed() {
		if r.HeadFrom != "" && r.Head != "" && r.HeadFrom != r.Head && !called {
			if what, lines := t.Details.changed(ctx, r.Tenant, r.HeadFrom, r.Head); what != "" {
				text, right = what, lines
			}
		}
		if called {
			if right = t.Details.printed(ctx, session.Ref{Key: r.Key(), Version: th.version}, r.Step); right != "" {
				text = CutExit(text)
			}
		}
	}
	if r.HeadFrom != r.Head && r.Head != "" {
		for id, p := range t.threads { // branches of the same parent see it
			if p.depth < th.depth {
				t.moved[id] = true
			}
		}
	}
	t.act(r, th, actor, text, right)
	if called {
		t.close()
	}
}

// CutExit removes the exit status of a command, which stands beside it.
func CutExit(text string) string {
	if i := strings.LastIndex(text, ", exit "); i > 0 {
		return text[:i]
	}
	return text
}

func (t *Timeline) chunk(r *messages.Record, th *thread) {
	switch {
	case r.Role == string(session.ToolResult):
		if t.turn != nil && t.turn.session == r.Session {
			t.turn.version = th.version
		}
	case r.Role == string(session.User) && (t.Users || r.Run == ""):
		if t.turn == nil || t.turn.actor != "" { // a recall belongs to the agent that speaks next
			t.close()
		}
		t.say(Line{Depth: th.depth, Session: r.Session, Version: th.version, Actor: r.Actor(), Text: r.Action()})
	}
}

// alone writes a record on a line of its own.
func (t *Timeline) alone(r *messages.Record, th *thread, style term.Style) {
	t.close()
	if style == "" && r.Failed() {
		style = term.Red
	}
	t.say(Line{Depth: th.depth, Session: r.Session, Version: th.version, Actor: r.Actor(), Text: r.Action(), style: style})
}

// joined writes the outcome of several branches in one line.
func (t *Timeline) joined(r *messages.Record, th *thread, word string, from []messages.Ref) {
	labels := make([]string, len(from))
	for i, p := range from {
		labels[i] = t.threads[p.Session].label
	}
	t.close()
	t.say(Line{Depth: th.depth, Session: r.Session, Version: th.version, Actor: "workflow", Text: word + " " + strings.Join(labels, ", "), style: term.Green})
}

// verdict writes the outcome of a branch, in place of the answer that decided it.
func (t *Timeline) verdict(id session.ID, text string, style term.Style) {
	th := t.threads[id]
	if th == nil || t.folded[id] {
		return
	}
	if u := t.turn; u != nil && u.session == id && len(u.acts) == 0 {
		t.turn = nil
	}
	t.close()
	t.say(Line{Depth: th.depth, Session: id, Version: th.version, Actor: th.speaker, Text: text, style: style})
}

// close writes the open turn.
func (t *Timeline) close() {
	u := t.turn
	if t.turn = nil; u == nil {
		return
	}
	// Recalls come after other actions.
	slices.SortStableFunc(u.acts, func(a, b string) int {
		return cmp.Compare(len(a)-len(strings.TrimPrefix(a, "recalls ")), len(b)-len(strings.TrimPrefix(b, "recalls ")))
	})
	text := strings.Join(u.acts, ", ")
	if text == "" {
		text = u.said
	}
	if text == "" {
		return // it called tools whose records have not arrived
	}
	l := Line{
		Depth: t.threads[u.session].depth, Session: u.session, Version: u.version, Actor: cmp.Or(u.actor, "memory"), Text: text,
		Right: strings.Join(u.right, ", "), acts: u.acts,
	}
	if u.failed {
		l.style = term.Red
	}
	t.say(l)
}

func (t *Timeline) say(l Line) {
	if t.folded[l.Session] && l.style != term.Red && l.style != term.Yellow {
		return
	}
	if l.Session != t.at && !l.heading {
		l.Label = t.threads[l.Session].label
	}
	t.at = l.Session
	t.emit(l)
}
