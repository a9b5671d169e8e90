package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

func TestMain(m *testing.M) { flowtest.Main(m) }

const script = "testdata/model.txtar"

// TestTask sends a task to a node that offers the workflow, as any client does.
func TestTask(t *testing.T) {
	data := must.Get(os.ReadFile(script))(t)
	parsed := must.Get(scripted.Parse(script, data))(t)
	model := must.Get(scripted.New(parsed, nil))(t)
	n := must.Get(node.Start(t.Context(), &node.Options{
		Store: t.TempDir(), NATS: node.NATS{Port: -1}, Models: node.Models{Source: model}, Workflows: []flow.Registration{registration()},
	}))(t)
	t.Cleanup(func() { must.Report(t, n.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := must.Get(client.Connect(ctx, n.URL(), nil))(t)
	t.Cleanup(func() { must.Report(t, c.Close()) })

	var streamed strings.Builder
	r := must.Get(c.Do(ctx, "summary", messages.Task{Input: json.RawMessage(`"All about the tides."`)}, func(u client.Update) {
		if u.Delta != nil && u.Delta.Agent == "editor" {
			streamed.WriteString(u.Delta.Text)
		}
	}))(t)
	const want = "The moon pulls the sea."
	if r.State != run.Succeeded || r.Output != want {
		t.Errorf("the run %s: %q, %s", r.State, r.Output, r.Error)
	}
	if streamed.String() != want {
		t.Errorf("the editor's words came as %q", streamed.String())
	}

	r = must.Get(c.Do(ctx, "summary", messages.Task{Input: json.RawMessage(`7`)}, nil))(t)
	if r.State != run.Failed || !strings.Contains(r.Error, "want a text") {
		t.Errorf("a task with a number: %s, %q", r.State, r.Error)
	}
}

func TestSurvivesCrashes(t *testing.T) {
	flowtest.CrashEverywhere(t, func() flow.Workflow {
		w := must.Get(newSummary(flow.Info{Input: json.RawMessage(`"All about the tides."`)}))(t)
		return w
	}, session.New(), script, nil)
}
