//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func init() {
	children["fleet-node"] = fleetNode
	children["fleet-router"] = func() error { node.RouterMain(); return nil }
}

// The environment of a node of a fleet.
const (
	envWitness  = "RATH_E2E_WITNESS"  // file of the witnessing tools
	envModel    = "RATH_E2E_MODEL"    // base URL
	envFiles    = "RATH_E2E_FILES"    // directory to copy as a workspace
	envRevision = "RATH_E2E_REVISION" // of the workflows
)

// sighting is one line of the witness file: an execution of a tool that took
// place, written before its effect could be known to anybody.
type sighting struct {
	Tool    string    `json:"tool"`
	Call    string    `json:"call"`
	Attempt uint64    `json:"attempt"`
	Effect  string    `json:"effect"`
	Node    string    `json:"node"`
	PID     int       `json:"pid"`
	Time    time.Time `json:"time"`
}

// witnessing is a tool that leaves a line outside of the workspace.
func witnessing(name string, effect tool.Effect) tool.Tool {
	return tool.Func(name, "Writes a line outside of the workspace.", func(ctx context.Context, in struct {
		MS   int  `json:"ms,omitempty"`   // how long it takes
		Deaf bool `json:"deaf,omitempty"` // it takes that long whatever happens
	},
	) (string, error) {
		call, _ := tool.Current(ctx)
		line, err := json.Marshal(sighting{
			Tool: name, Call: call.ID, Attempt: call.Attempt, Effect: effect.String(), Node: os.Getenv("RATH_FLEET_NAME"), PID: os.Getpid(), Time: time.Now(),
		})
		if err != nil {
			return "", err
		}
		f, err := os.OpenFile(os.Getenv(envWitness), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return "", err
		}
		defer f.Close()
		if _, err := f.Write(append(line, '\n')); err != nil { // one write: lines of other nodes do not mix
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
		return name + " done", nil
	}, &tool.FuncOptions{Effect: effect})
}

// fleetNode is a node with the workflows that the load generator submits. What
// a run does depends on its input alone.
func fleetNode() error {
	provider := llm.Provider{Kind: "openai", Model: "m", BaseURL: os.Getenv(envModel)}
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
		return flow.Registration{Name: name, Revision: revision, Description: "Load of the end-to-end tests.", NewFor: func(in flow.Settings) (flow.Workflow, error) {
			var prompt string
			if len(in.Input) > 0 { // chosen by a router, it has none
				if err := json.Unmarshal(in.Input, &prompt); err != nil {
					return nil, err
				}
			}
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) { return forward(ctx, s, prompt) }), nil
		}}
	}
	node.Main(
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
		prompted("ask", func(ctx context.Context, s session.Session, prompt string) (session.Session, error) {
			return ask(ctx, worker, s, prompt)
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

// fan works on three branches at the same time, wherever there is room. With
// the prompt "first" one of them is enough.
func fan(ctx context.Context, worker *flow.Agent, s session.Session, prompt string) (session.Session, error) {
	s, err := worker.Forward(ctx, s.With(session.UserText("branch of "+prompt)))
	if err != nil {
		return s, err
	}
	var branches []flow.Branch
	for i := range 3 {
		name := "way" + strconv.Itoa(i)
		branches = append(branches, flow.Branch{Name: name, Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return worker.Forward(ctx, s.With(session.UserText("branch "+name+" of "+prompt)))
		})})
	}
	first := strings.HasPrefix(prompt, "first")
	j, err := flow.FanOut(ctx, s, branches, &flow.FanOutOptions{Join: flow.Join{First: first}})
	if err != nil {
		return s, err
	}
	if n := len(j.Succeeded()); n < 3 && !first || n == 0 {
		for _, o := range j.Outcomes {
			err = errors.Join(err, o.Err)
		}
		return s, err
	}
	if first {
		return flow.Merge(ctx, j, flow.Pick(j.Succeeded()[0]))
	}
	return flow.Merge(ctx, j, flow.SinceAncestor())
}

// ask waits for a person, for a while, and for a person again.
func ask(ctx context.Context, worker *flow.Agent, s session.Session, prompt string) (session.Session, error) {
	s, err := worker.Forward(ctx, s.With(session.UserText("branch of "+prompt)))
	if err != nil {
		return s, err
	}
	for _, title := range []string{"May it go on?", "May it end?"} {
		a, err := flow.Approve(ctx, flow.Question{Title: title})
		if err != nil {
			return s, err
		}
		s = s.With(session.UserText(fmt.Sprintf("%s %v", title, a.Approved)))
		if err := flow.Sleep(ctx, time.Second); err != nil {
			return s, err
		}
	}
	return worker.Forward(ctx, s.With(session.UserText("branch of "+prompt)))
}

// chunksOf says what an undisturbed run of a workflow leaves in its session,
// by the kinds of its chunks.
func chunksOf(workflow, prompt string) string {
	kinds := map[string]string{
		"plain":  "user assistant tool_result tool_result assistant tool_result assistant",
		"pay":    "user assistant tool_result assistant",
		"drag":   "user assistant tool_result assistant",
		"write":  "user assistant tool_result tool_result assistant tool_result assistant",
		"branch": "user assistant tool_result assistant",
	}
	word, _, _ := strings.Cut(prompt, " ")
	repeat := func(n int) string { return strings.TrimSpace(strings.Repeat(kinds["branch"]+" ", n)) }
	switch {
	case workflow == "split":
		return kinds["plain"] + " " + kinds["branch"]
	case workflow == "fan" && word == "first":
		return repeat(2)
	case workflow == "fan":
		return repeat(4)
	case workflow == "fanout":
		return "user " + repeat(2)
	case workflow == "auto":
		return kinds["branch"]
	case workflow == "ask":
		return kinds["branch"] + " user user " + kinds["branch"]
	}
	k, ok := kinds[word]
	if !ok {
		panic(fmt.Sprintf("no load %q of workflow %s", prompt, workflow))
	}
	return k
}
