package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rathcluster/rath/client/toolserver"
	"github.com/rathcluster/rath/cmd/rath/internal/inspect"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// offering is the node of a transcript. Command lines reach it like the node of "rath
// dev".
type offering struct {
	node *node.Instance
	ends []func() // the programs that serve tools
}

// notes writes release notes, and publishes them once a person has approved. Revision 2
// begins with another step.
func notes(revision string) flow.Registration {
	text := "notes"
	if revision != "1" {
		text = "changes"
	}
	return flow.Registration{Name: "release", Description: "Publishes a release.", Revision: revision, New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			text, err := flow.Do(ctx, text, func(context.Context) (string, error) { return "the " + text, nil }, tool.NonIdempotent)
			if err != nil {
				return s, err
			}
			a, err := flow.Approve(ctx, "Publish?", &flow.AwaitOptions{Detail: text})
			if err != nil {
				return s, err
			}
			return s.With(session.UserText(text + " by revision " + revision + ", approved by " + a.By)), nil
		})
	}}
}

// apart writes release notes on a branch.
type apart struct{ Branches []flow.Branch }

func (w *apart) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	j, err := flow.FanOut(ctx, s, w.Branches, nil)
	if err != nil {
		return s, err
	}
	return flow.Merge(ctx, j, flow.SinceAncestor())
}

var notesApart = flow.Registration{Name: "releases", Description: "Publishes a release from a branch.", Revision: "1", New: func() flow.Workflow {
	return &apart{Branches: []flow.Branch{{Name: "only", Workflow: flow.Remote{Workflow: "release"}}}}
}}

// deploy asks for a day, and then waits for messages.
var deploy = flow.Registration{Name: "deploy", Description: "Deploys on a day.", Revision: "1", New: func() flow.Workflow {
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		day, err := flow.Await[string](ctx, "day", &flow.AwaitOptions{Title: "On which day?"})
		if err != nil {
			return s, err
		}
		if s, err = flow.Listen(ctx, s, &flow.AwaitOptions{Title: "What is to be said?"}); err != nil {
			return s, err
		}
		return s.With(session.UserText("deployed on " + day)), nil
	})
}}

// shipment is the type of an answer to survey.
type shipment struct {
	Copies int    `json:"copies"`
	Place  string `json:"place"`
}

// survey asks for values of several types, one after the other.
var survey = flow.Registration{Name: "survey", Description: "Asks for a version, a number, yes or no, and a shipment.", Revision: "1", New: func() flow.Workflow {
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		version, err := flow.Await[string](ctx, "version", &flow.AwaitOptions{Title: "Which version?"})
		if err != nil {
			return s, err
		}
		copies, err := flow.Await[uint8](ctx, "copies", &flow.AwaitOptions{Title: "How many?"})
		if err != nil {
			return s, err
		}
		sure, err := flow.Await[bool](ctx, "sure", &flow.AwaitOptions{Title: "Sure?"})
		if err != nil {
			return s, err
		}
		to, err := flow.Await[shipment](ctx, "to", &flow.AwaitOptions{Title: "Where to?"})
		if err != nil {
			return s, err
		}
		return s.With(session.UserText(fmt.Sprintf("%q %d %t %v", version, copies, sure, to))), nil
	})
}}

// offer ends the current node and starts one that offers a revision of the workflow
// release, and others; "nothing" starts none, and "builtin" one of another pool that
// offers the built-in workflows.
func (o *offering) offer(t *testing.T, dir, revision string) {
	t.Helper()
	for _, end := range o.ends {
		end()
	}
	o.ends = nil
	if o.node != nil {
		must.Do(t, o.node.Close())
		o.node = nil
	}
	if revision == "nothing" {
		return
	}
	opts := &node.Options{
		Store: filepath.Join(dir, ".rath"), Name: "host", NATS: node.NATS{Port: -1}, Workflows: []flow.Registration{notes(revision), notesApart, deploy, survey},
	}
	if revision == "builtin" {
		opts.Fleet.Pool, opts.Workflows = "other", nil
	}
	var err error
	o.node, err = node.Start(t.Context(), opts)
	must.Do(t, err)
	c, err := o.node.Client(t.Context())
	must.Do(t, err)
	defer c.Close()
	waitFor(t, func() bool { // for its entry
		all, err := c.Fleet.Nodes(t.Context())
		return err == nil && len(all) > 0
	})
}

// await waits until a run of the node has a state, and until a queued one shows what it
// waits for.
func (o *offering) await(t *testing.T, id run.ID, want run.State) {
	t.Helper()
	c, err := o.node.Client(t.Context())
	must.Do(t, err)
	defer c.Close()
	var last messages.RunInfo
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for last.State != want {
		if last, err = c.Runs.Get(ctx, id); ctx.Err() != nil {
			t.Fatalf("run %s is %s, want %s: %v", id, last.State, want, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if want == run.Queued && len(last.Waits) > 0 {
		waitFor(t, func() bool {
			l, err := c.Runs.Live(ctx, id)
			return err == nil && len(l.Waits) > 0
		})
	}
}

// awaits waits until a run asks a question at a step.
func (o *offering) awaits(t *testing.T, id run.ID, step run.Path) {
	t.Helper()
	c := must.Get(o.node.Client(t.Context()))(t)
	defer c.Close()
	waitFor(t, func() bool {
		r, err := c.Runs.Get(t.Context(), id)
		return err == nil && slices.ContainsFunc(r.Waits, func(w messages.Wait) bool { return w.Step == step })
	})
}

// serve announces a tool and answers its calls, as another program does, until
// the node ends.
func (o *offering) serve(t *testing.T, name string) {
	t.Helper()
	c := must.Get(o.node.Client(t.Context()))(t)
	weather := tool.Func(name, "Current weather of a city.", func(_ context.Context, in struct {
		City string `json:"city"`
	},
	) (string, error) {
		return "clear in " + in.City, nil
	}, &tool.FuncOptions{Effect: tool.ReadOnly})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- toolserver.Serve(ctx, c, weather, 90*time.Second) }()
	o.ends = append(o.ends, func() {
		cancel()
		must.Report(t, errors.Join(<-served, c.Close()))
	})
	waitFor(t, func() bool {
		all, err := c.Tools.List(ctx)
		return err == nil && slices.ContainsFunc(all, func(v messages.Tool) bool { return v.Name == name })
	})
}

// command plays a line for the node; ok is false for all other lines.
func (o *offering) command(t *testing.T, words []string, dir string) (ok bool) {
	t.Helper()
	switch words[0] {
	case "offer":
		o.offer(t, dir, words[1])
	case "serve":
		o.serve(t, words[1])
	case "awaits":
		o.awaits(t, run.ID(words[1]), run.Path(words[2]))
	case "await":
		if !slices.Contains(inspect.AllStates, run.State(words[2])) {
			t.Fatalf("await: %q is no state", words[2])
		}
		o.await(t, run.ID(words[1]), run.State(words[2]))
	default:
		return false
	}
	return true
}
