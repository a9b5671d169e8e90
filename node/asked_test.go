package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestAsked: the question of an approval leads to its call, also on a fork, behind more
// rows than one answer holds, and beside calls that need no approval. A question of the
// workflow itself concerns no call, and has its own subject.
func TestAsked(t *testing.T) {
	t.Parallel()
	const patch = "--- a/one\n+++ b/one\n-two\n+2\n"
	type mail struct {
		To   string `json:"to"`
		Text string `json:"text"`
	}
	send := tool.Func("send", "Sends a mail.", func(context.Context, mail) (string, error) { return "sent", nil }, &tool.FuncOptions{Effect: tool.Idempotent})
	look := tool.Func("look", "Looks.", func(context.Context, struct{}) (string, error) { return "here", nil }, &tool.FuncOptions{Effect: tool.ReadOnly})
	agent := &flow.Agent{
		Name: "a", Tools: []tool.Tool{send, look},
		Approve: func(spec tool.Spec, _ json.RawMessage) bool { return spec.Name == "send" },
	}
	mails := flow.Registration{Name: "mails", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			if a, err := flow.Approve(ctx, "May I?", &flow.AwaitOptions{Detail: patch}); err != nil || !a.Approved {
				return s, err
			}
			for i := range 300 {
				s = s.With(session.UserText(fmt.Sprintf("row %d", i)))
			}
			f, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			if f, err = agent.Forward(ctx, f.With(session.UserText("send them"))); err != nil {
				return s, err
			}
			return flow.Adopt(ctx, s, f, "sent")
		})
	}}
	n := begin(t, &Options{Store: t.TempDir(), NATS: NATS{Level: "lazy"}, Models: Models{Source: scriptOf(t, "asked.txtar", nil)}, Workflows: []flow.Registration{mails}}).started(t)
	c := must.Get(n.Client(t.Context()))(t)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	must.Get(c.Submit(ctx, "mails", messages.Task{ID: "one"}))(t)
	open := func(want int) []client.Question {
		t.Helper()
		for {
			qs := must.Get(c.Questions.List(ctx))(t)
			if len(qs) == want {
				return qs
			}
			if r, err := c.Runs.Result(ctx, "one"); err == nil {
				t.Fatalf("the run ended: %+v", r)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}

	first := open(1)[0]
	if call, err := c.Questions.Call(ctx, first); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("the workflow's question is about %+v, %v", call, err)
	}
	if text, _, err := c.Questions.Detail(ctx, first); err != nil || text != patch {
		t.Errorf("the workflow's question says %q, %v; want %q", text, err, patch)
	}
	must.Do(t, c.Questions.Approve(ctx, "one", messages.Control{Step: first.Step}))
	for i, q := range open(2) {
		want := []string{`{"to": "ann", "text": "one"}`, `{"to": "bob", "text": "two"}`}[i]
		if call, err := c.Questions.Call(ctx, q); err != nil || call.Name != "send" || call.Args != want {
			t.Errorf("question %s is about %+v, %v; want send %s", q.Step, call, err, want)
		}
		must.Do(t, c.Questions.Approve(ctx, "one", messages.Control{Step: q.Step}))
	}
	if r, err := c.Wait(ctx, "one"); err != nil || r.State != run.Succeeded {
		t.Errorf("%+v, %v", r, err)
	}
}
