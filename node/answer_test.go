package node

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestWrongAnswer: package client rejects an answer of the wrong type, and so does the
// node for a plain request on NATS. The run continues to wait, and its query has the
// question's schema, of which a client makes a form.
func TestWrongAnswer(t *testing.T) {
	t.Parallel()
	type choice struct {
		Place  string `json:"place" jsonschema:"where to"`
		Copies int    `json:"copies"`
	}
	deploy := flow.Registration{Name: "deploy", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			c, err := flow.Await[choice](ctx, "choice", &flow.AwaitOptions{Title: "Where?"})
			if err != nil {
				return s, err
			}
			return s.With(session.UserText(c.Place)), nil
		})
	}}
	n := begin(t, &Options{Store: t.TempDir(), NATS: NATS{Level: "lazy", Port: -1}, Workflows: []flow.Registration{deploy}}).started(t)
	c, err := n.Client(t.Context())
	must.Do(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	must.Get(c.Submit(ctx, "deploy", messages.Task{ID: "one"}))(t)
	var r messages.RunInfo
	for r.State != run.Waiting || len(r.Waits) == 0 {
		if r, err = c.Runs.Get(ctx, "one"); ctx.Err() != nil {
			t.Fatalf("%+v, %v", r, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := r.Waits[0].Wants; got != "an object {copies, place}" {
		t.Errorf("it wants %q", got)
	}
	var schema struct {
		Properties map[string]struct {
			Type, Description string
		}
		Required []string
	}
	if err := json.Unmarshal(r.Schemas["0"], &schema); err != nil || schema.Properties["place"].Type != "string" || schema.Properties["place"].Description != "where to" || len(schema.Required) != 2 {
		t.Errorf("the schema is %s: %v", r.Schemas["0"], err)
	}
	const want = `run one asks "Where?" at step 0 for an object {copies, place}, and waits on: "copies": type: many has type "string", want "integer"`
	const wrong = `{"place":"staging","copies":"many"}`
	if err := c.Questions.Answer(ctx, "one", messages.Control{Value: json.RawMessage(wrong)}); !errors.Is(err, run.ErrMalformed) || !strings.Contains(err.Error(), want) {
		t.Errorf("the client is answered %v; want %s", err, want)
	}
	nc, err := nats.Connect(n.URL())
	must.Do(t, err)
	defer nc.Close()
	m, err := nc.RequestWithContext(ctx, "rath.ctl.default.anonymous.one.respond", []byte(`{"step":"0","value":`+wrong+`}`))
	must.Do(t, err)
	if a := string(m.Data); !strings.Contains(a, `"code":"malformed"`) || !strings.Contains(strings.ReplaceAll(a, `\`, ""), want) {
		t.Errorf("a plain request is answered %s; want %s", a, want)
	}
	if r, err = c.Runs.Get(ctx, "one"); err != nil || r.State != run.Waiting {
		t.Errorf("the run is %s: %v", r.State, err)
	}
	must.Report(t, c.Questions.Answer(ctx, "one", messages.Control{Value: json.RawMessage(`{"place":"staging","copies":2}`)}))
	if r, err := c.Wait(ctx, "one"); err != nil || r.State != run.Succeeded {
		t.Errorf("%+v, %v", r, err)
	}
}
