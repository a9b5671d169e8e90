//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/client/toolserver"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func init() {
	children["fleet-node"] = fleetNode
	children["fleet-tool"] = fleetTool
	children["fleet-router"] = func() error { node.RouterMain(); return nil }
}

// poisonous is the workflow that ends its process.
const poisonous = "poison"

// The environment of a node of a fleet.
const (
	envWitness  = "RATH_E2E_WITNESS"  // file of the witnessing tools
	envModel    = "RATH_E2E_MODEL"    // base URL
	envFiles    = "RATH_E2E_FILES"    // directory to copy as a workspace
	envRevision = "RATH_E2E_REVISION" // of the workflows
	envStall    = "RATH_E2E_STALL"    // directory; a file with a node's name in it stops the node's runs
)

// sighting is one line of the witness file: an actual execution of a tool, written before
// its effect is visible to anyone.
type sighting struct {
	Tool    string    `json:"tool"`
	Call    string    `json:"call,omitempty"`
	Run     string    `json:"run,omitempty"`  // of a step without a call
	Step    string    `json:"step,omitempty"` // likewise
	Attempt uint64    `json:"attempt"`
	Effect  string    `json:"effect"`
	Node    string    `json:"node"`
	PID     int       `json:"pid"`
	Loud    int       `json:"loud,omitempty"`
	Time    time.Time `json:"time"`
}

// witnessing is a tool that leaves a line outside of the workspace.
func witnessing(name string, effect tool.Effect) tool.Tool {
	return tool.Func(name, "Writes a line outside of the workspace.", func(ctx context.Context, in struct {
		MS   int  `json:"ms,omitempty"`   // its duration
		Deaf bool `json:"deaf,omitempty"` // it takes that long even if it is cancelled
		Loud int  `json:"loud,omitempty"` // only noted
	},
	) (string, error) {
		call, _ := tool.Current(ctx)
		if err := leave(sighting{Tool: name, Call: call.ID, Attempt: call.Attempt, Effect: effect.String(), Loud: in.Loud}); err != nil {
			return "", err
		}
		stop := ctx.Done()
		if in.Deaf {
			// The run's goroutine stands still while its node lives on.
			stop = nil
		}
		select {
		case <-time.After(time.Duration(in.MS) * time.Millisecond):
		case <-stop:
			return "", ctx.Err()
		}
		stall()
		return name + " done", nil
	}, &tool.FuncOptions{Effect: effect})
}

// stall stops the goroutine of a run, even if the run is cancelled, while the
// nemesis wants that: the node, and the actor of the session, live on.
func stall() {
	dir := os.Getenv(envStall)
	if dir == "" {
		return
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, os.Getenv("RATH_FLEET_NAME"))); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// fleetTool is a program that has a tool for the agents of the fleet.
func fleetTool() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := client.Connect(ctx, os.Getenv("NATS_URL"), &client.Options{User: os.Getenv("NATS_USER"), Password: os.Getenv("NATS_PASSWORD")})
	if err != nil {
		return err
	}
	defer c.Close()
	told := make(chan error, 1)
	go func() { told <- toolserver.Serve(ctx, c, witnessing("sound", tool.Idempotent), 0) }()
	for {
		if all, err := c.Tools.List(ctx); err == nil && slices.ContainsFunc(all, func(t messages.Tool) bool { return t.Name == "sound" }) {
			fmt.Println("the tool is up")
			return <-told
		}
		select {
		case err := <-told:
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// fleetNode is a node with the workflows that the load generator submits. A run's actions
// depend only on its input.
func fleetNode() error {
	provider := llm.Provider{Kind: "openai", Model: "m", BaseURL: os.Getenv(envModel), KeyRef: openai.EnvKey}
	agent := func(name string, tools ...tool.Tool) *flow.Agent {
		return &flow.Agent{Name: name, Prompt: "You work.", Provider: provider, Tools: tools}
	}
	worker := agent("worker", witnessing("count", tool.Idempotent), witnessing("peek", tool.ReadOnly), witnessing("pay", tool.NonIdempotent))
	writer := agent("writer", append(tool.Builtins(), witnessing("count", tool.Idempotent))...)
	prompted := func(name string, forward func(ctx context.Context, s session.Session, prompt string) (session.Session, error)) flow.Registration {
		revision := os.Getenv(envRevision)
		if revision == "" {
			revision = "1"
		}
		return flow.Registration{Name: name, Revision: revision, Description: "Load of the end-to-end tests.", NewFor: func(in flow.Info) (flow.Workflow, error) {
			var prompt string
			if len(in.Input) > 0 { // chosen by a router, it has none
				if err := json.Unmarshal(in.Input, &prompt); err != nil {
					return nil, err
				}
			}
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) { return forward(ctx, s, prompt) }), nil
		}}
	}
	turns := prompted("turns", func(ctx context.Context, s session.Session, prompt string) (session.Session, error) {
		return worker.Forward(ctx, s.With(session.UserText("branch of "+prompt)))
	})
	turns.Limit = &run.Limit{Key: []string{"tag.customer"}, Concurrency: 1}
	node.Main(
		turns,
		prompted("work", func(ctx context.Context, s session.Session, prompt string) (session.Session, error) {
			return worker.Forward(ctx, s.With(session.UserText(prompt)))
		}),
		prompted("files", func(ctx context.Context, s session.Session, prompt string) (session.Session, error) {
			return writer.Forward(ctx, s.To("local", os.Getenv(envFiles)).With(session.UserText(prompt)))
		}),
		prompted("split", func(ctx context.Context, s session.Session, prompt string) (session.Session, error) {
			return split(ctx, worker, s, prompt)
		}),
		prompted("step", func(ctx context.Context, s session.Session, _ string) (session.Session, error) {
			return worker.Forward(ctx, s)
		}),
		prompted("fan", func(ctx context.Context, s session.Session, prompt string) (session.Session, error) {
			return fan(ctx, worker, s, prompt)
		}),
		prompted("answer", func(ctx context.Context, s session.Session, prompt string) (session.Session, error) {
			return respond(ctx, worker, s, prompt)
		}),
		prompted(poisonous, func(context.Context, session.Session, string) (session.Session, error) {
			time.Sleep(100 * time.Millisecond) // until the claims of the concurrent runs are stored
			fmt.Fprintln(os.Stderr, poisonWords)
			os.Exit(poisonExit)
			panic("not reached")
		}),
		prompted("ask", func(ctx context.Context, s session.Session, prompt string) (session.Session, error) {
			return ask(ctx, worker, s, prompt)
		}),
		prompted("starts", func(ctx context.Context, s session.Session, prompt string) (session.Session, error) {
			return starts(ctx, worker, s, prompt)
		}),
		prompted("books", books),
		prompted("holds", holds),
		prompted("listens", listens),
		prompted("fails", func(ctx context.Context, s session.Session, prompt string) (session.Session, error) {
			return fails(ctx, worker, s, prompt)
		}),
	)
	return nil
}

// split tries two branches one after the other, adopts the second and rejects
// the first.
func split(ctx context.Context, worker *flow.Agent, s session.Session, prompt string) (session.Session, error) {
	s, err := worker.Forward(ctx, s.With(session.UserText(prompt)))
	if err != nil {
		return s, err
	}
	var branches [2]session.Session
	for i := range branches {
		if branches[i], err = flow.Fork(ctx, s); err != nil {
			return s, err
		}
		branches[i], err = worker.Forward(ctx, branches[i].With(session.UserText("branch "+strconv.Itoa(i)+" of "+prompt)))
		if err != nil {
			return s, err
		}
	}
	if err := flow.Reject(ctx, branches[0], "the other one is better"); err != nil {
		return s, err
	}
	return flow.Adopt(ctx, s, branches[1], "it is better")
}

// fan works on three branches at the same time, wherever there is room, and
// takes all of them. With the prompt "first" one of them is enough, with "quorum"
// two are, and with "nest" there are two, which do the same themselves.
func fan(ctx context.Context, worker *flow.Agent, s session.Session, prompt string) (session.Session, error) {
	s, err := worker.Forward(ctx, s.With(session.UserText("branch of "+prompt)))
	if err != nil {
		return s, err
	}
	word, _, _ := strings.Cut(prompt, " ")
	way := func(name string) flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return worker.Forward(ctx, s.With(session.UserText("branch "+name+" of "+prompt)))
		})
	}
	var o flow.FanOutOptions
	ways := []string{"way0", "way1", "way2"}
	switch word {
	case "first":
		o.First = true
	case "quorum":
		o.Quorum = 2
	case "nest":
		ways = ways[:2]
		leaf := way
		way = func(name string) flow.Workflow {
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				s, err := leaf(name).Forward(ctx, s)
				if err != nil {
					return s, err
				}
				return branchOut(ctx, s, ways, leaf, nil)
			})
		}
	}
	return branchOut(ctx, s, ways, way, &o)
}

// branchOut opens branches and merges those that succeed: one of them if not all are
// needed.
func branchOut(ctx context.Context, s session.Session, ways []string, way func(name string) flow.Workflow, o *flow.FanOutOptions) (session.Session, error) {
	branches := make([]flow.Branch, len(ways))
	for i, name := range ways {
		branches[i] = flow.Branch{Name: name, Workflow: way(name)}
	}
	j, err := flow.FanOut(ctx, s, branches, o)
	if err != nil {
		return s, err
	}
	need, some := len(ways), o != nil && (o.First || o.Quorum > 0)
	if some {
		need = max(o.Quorum, 1)
	}
	if len(j.Succeeded()) < need {
		for _, o := range j.Outcomes {
			err = errors.Join(err, o.Err)
		}
		return s, err
	}
	if some {
		return flow.Merge(ctx, j, flow.Pick(j.Succeeded()[0]))
	}
	return flow.Merge(ctx, j, flow.SinceAncestor())
}

// respond waits for a value from outside.
func respond(ctx context.Context, worker *flow.Agent, s session.Session, prompt string) (session.Session, error) {
	s, err := worker.Forward(ctx, s.With(session.UserText("branch of "+prompt)))
	if err != nil {
		return s, err
	}
	v, err := flow.Await[string](ctx, "number", &flow.AwaitOptions{Title: "Which number?"})
	if err != nil {
		return s, err
	}
	return worker.Forward(ctx, s.With(session.UserText("The number is "+v)).With(session.UserText("branch of "+prompt)))
}

// ask waits for an approval twice and sleeps for a while after each.
func ask(ctx context.Context, worker *flow.Agent, s session.Session, prompt string) (session.Session, error) {
	s, err := worker.Forward(ctx, s.With(session.UserText("branch of "+prompt)))
	if err != nil {
		return s, err
	}
	for _, title := range []string{"May it go on?", "May it end?"} {
		a, err := flow.Approve(ctx, title, nil)
		if err != nil {
			return s, err
		}
		s = s.With(session.UserText(fmt.Sprintf("%s %v %s", title, a.Approved, a.Value)))
		if err := flow.Sleep(ctx, time.Second); err != nil {
			return s, err
		}
	}
	return worker.Forward(ctx, s.With(session.UserText("branch of "+prompt)))
}
