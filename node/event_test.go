package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// payments has a workflow that waits for as many payments of an invoice as its input says.
func payments() []flow.Registration {
	return []flow.Registration{{Name: "pay", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			i, _ := flow.RunInfo(ctx)
			n := 0
			if err := json.Unmarshal(i.Input, &n); err != nil {
				return s, err
			}
			for range n {
				e, err := flow.AwaitEvent(ctx, "invoice.paid", "4711", &flow.AwaitOptions{Timeout: time.Hour})
				if err != nil {
					return s, err
				}
				s = s.With(session.AssistantText(fmt.Sprintf("%s %s", s.Text(), e.Value)))
				if e.By == "" || int(e.Seq) == 0 {
					return s, fmt.Errorf("event %+v", e)
				}
			}
			return s, nil
		})
	}}}
}

func paying(t *testing.T, c *client.Client, id run.ID, n int) {
	t.Helper()
	must.Get(c.Submit(t.Context(), "pay", messages.Task{ID: id, Input: json.RawMessage(fmt.Sprint(n))}))(t)
}

// TestEvents: an event reaches all runs that wait for it, and those that wait later; an id
// makes it idempotent, and bad events are rejected.
func TestEvents(t *testing.T) {
	t.Parallel()
	n := must.Get(Start(t.Context(), &Options{Store: t.TempDir(), NATS: NATS{Level: "lazy", Port: -1}, Fleet: Fleet{Pool: "default"}, Workflows: payments()}))(t)
	t.Cleanup(func() { must.Report(t, n.Close()) })
	c := must.Get(n.Client(t.Context()))(t)
	t.Cleanup(func() { must.Report(t, c.Close()) })
	publish := func(value, id string) error {
		return c.Publish(t.Context(), "invoice.paid", "4711", messages.Control{Value: json.RawMessage(value), ID: id})
	}
	for i := range 3 {
		paying(t, c, run.ID(fmt.Sprint("two-", i)), 2)
	}
	i := inState(t, c, "two-0", run.Waiting)
	if w := i.Waits[0]; w.Kind != run.WaitEvent || !strings.HasPrefix(w.String(), "for event: invoice.paid 4711 (until ") {
		t.Errorf("it waits %s: %+v", w, w)
	}
	must.Do(t, publish("10", "a"))
	must.Do(t, publish("10", "a"))
	if err := publish("11", "a"); !errors.Is(err, run.ErrKeyReused) {
		t.Errorf("another value under the same id: %v", err)
	}
	must.Do(t, publish("20", ""))
	for i := range 3 {
		r := must.Get(c.Wait(t.Context(), run.ID(fmt.Sprint("two-", i))))(t)
		if r.State != run.Succeeded || r.Output != " 10 20" {
			t.Errorf("run %d: %+v", i, r)
		}
	}
	paying(t, c, "late", 1)
	if r := must.Get(c.Wait(t.Context(), "late"))(t); r.Output != " 10" {
		t.Errorf("a run that waits later: %+v", r)
	}
	large := json.RawMessage(`"` + strings.Repeat("x", run.MaxEventValue) + `"`)
	for _, bad := range []struct{ name, key, problem string }{
		{strings.Repeat("n", 10<<10), "k", "its name has 10240 bytes"},
		{"n", strings.Repeat("k", 10<<10), "its key has 10240 bytes"},
		{"", "k", "its name has 0 bytes"},
		{"rath.quota", "k", "come from Rath alone"},
	} {
		err := c.Publish(t.Context(), bad.name, bad.key, messages.Control{})
		if !errors.Is(err, run.ErrMalformed) || !strings.Contains(err.Error(), bad.problem) {
			t.Errorf("event %.20q with key %.20q: %v", bad.name, bad.key, err)
		}
	}
	if err := c.Publish(t.Context(), "n", "k", messages.Control{Value: large}); !errors.Is(err, session.ErrTooLarge) {
		t.Errorf("a value of %d bytes: %v", len(large), err)
	}
}
