// Package webtest has workflows and a scripted model for the pages: fan-outs with losers,
// questions with a difference, models that hang, hostile texts, and 10,000 rows. It has a
// server that receives notifications, too.
package webtest

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Script is the script of the model, as txtar.
//
//go:embed world.txtar
var Script []byte

// Rows is the number of rows of a run of workflow "rows" without a number as its input.
const Rows = 10_000

// Files are a project for the runs.
var Files = map[string]string{
	"slug.sh":     "# slug\nprintf '%s' \"$1\"\ndone\n",
	"deploy.yaml": "service: slug\nimage: slug:1.4.1\nreplicas: 3\n",
	"README.md":   "# slug\n",
	// A picture of one dot.
	"dot.gif": "GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;",
}

func writing(name string, approve bool) *flow.Agent {
	write, _ := tool.ByName(tool.WriteWorkspaceFile)
	a := &flow.Agent{Name: name, Prompt: "You are " + name, Tools: []tool.Tool{write}}
	if approve {
		a.Prompt = "You deploy"
		a.Approve = func(tool.Spec, json.RawMessage) bool { return true }
	}
	return a
}

// mend opens eight branches: one is adopted, six are rejected and one fails.
func mend(ctx context.Context, s session.Session) (session.Session, error) {
	var branches []flow.Branch
	for _, name := range []string{"skip", "awk", "awk2", "sed", "sed2", "cut", "perl", "broken"} {
		a := writing(strings.TrimSuffix(name, "2"), false)
		branches = append(branches, flow.Branch{Name: name, Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) { return a.Forward(ctx, s) })})
	}
	j, err := flow.FanOut(ctx, s, branches, nil)
	if err != nil {
		return s, err
	}
	return flow.Merge(ctx, j, flow.PickBest(func(context.Context, *flow.Joined) (int, []string, error) {
		const rewrites, blanks = "rewrites the whole script", "fails on names with blanks"
		return 0, []string{"all tests are green", rewrites, rewrites, blanks, blanks, "drops the last character", "needs perl", ""}, nil
	}))
}

func choose(ctx context.Context, s session.Session) (session.Session, error) {
	who, err := flow.Await[string](ctx, "first", &flow.AwaitOptions{Title: "Which customers get 1.4.2 \u202efirst?", Detail: "--- a/x\n+++ b/x\n-one\n+two <b> \u202egnp\n"})
	if err != nil {
		return s, err
	}
	return s.With(session.AssistantText("chosen: " + who)), nil
}

func rows(_ context.Context, s session.Session) (session.Session, error) {
	n := Rows
	for _, c := range s.Chunks() {
		if _, err := fmt.Sscan(c.Text(), &n); err == nil {
			break
		}
	}
	for i := range n {
		s = s.With(session.AssistantText(fmt.Sprintf("row %d of many", i)))
	}
	return s, nil
}

// Workflows are the workflows; each adds a text that is its input as a user's message.
func Workflows() (all []flow.Registration) {
	for name, f := range map[string]flow.Func{
		"mend": mend,
		"deploy": func(ctx context.Context, s session.Session) (session.Session, error) {
			return writing("deployer", true).Forward(ctx, s)
		},
		"talk": func(ctx context.Context, s session.Session) (session.Session, error) {
			return (&flow.Agent{Name: "writer", Prompt: "You write."}).Forward(ctx, s)
		},
		"choose": choose,
		"pay": func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.AwaitEvent(ctx, "invoice.paid", "o'brien 7", nil)
			return s, err
		},
		"rows": rows,
	} {
		all = append(all, flow.Registration{Name: name, Revision: "1", NewFor: func(o flow.Info) (flow.Workflow, error) {
			var text string
			if err := json.Unmarshal(o.Input, &text); err != nil && len(o.Input) > 0 {
				return nil, err
			}
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				if text != "" {
					s = s.With(session.UserText(text))
				}
				return f(ctx, s)
			}), nil
		}})
	}
	return all
}
