package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
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

const (
	// ledgerOf is the variable with the file to which started runs add their ids.
	ledgerOf = "RATH_TEST_LEDGER"
	// loopStarts is the number of runs that the workflow of looping starts.
	loopStarts = 100
)

// looping has a workflow that starts runs in a loop and waits for all, and theirs.
func looping() []flow.Registration {
	offer := func(name string, f flow.Func) flow.Registration {
		return flow.Registration{Name: name, Revision: "1", New: func() flow.Workflow { return f }}
	}
	return []flow.Registration{
		offer("loop", func(ctx context.Context, s session.Session) (session.Session, error) {
			var all []flow.Started
			for range loopStarts {
				one, err := flow.Start(ctx, flow.Task{Workflow: "noted"})
				if err != nil {
					return s, err
				}
				all = append(all, one)
			}
			n := 0
			for _, one := range all {
				end, err := one.Result(ctx, 0)
				if err != nil {
					return s, err
				}
				if end.Err == nil {
					n++
				}
			}
			return s.With(session.AssistantText(strconv.Itoa(n))), nil
		}),
		offer("noted", func(ctx context.Context, s session.Session) (session.Session, error) {
			i, _ := flow.RunInfo(ctx)
			_, err := flow.Do(ctx, "note", func(context.Context) (int, error) { return 1, note(string(i.Run)) }, tool.Idempotent)
			return s, err
		}),
	}
}

// note adds a line to the ledger.
func note(text string) error {
	f, err := os.OpenFile(os.Getenv(ledgerOf), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, text)
	return errors.Join(err, f.Close())
}

// starts has two workflows: order starts runs of pay as its input says, and answers with
// their outcomes; pay counts its executions, and waits for an answer if its input says so.
type starts struct {
	mu   sync.Mutex
	paid map[string]int
}

// orderInput is the input of order.
type orderInput struct {
	Start   []flow.Task
	Forget  bool          // no result is read
	Timeout time.Duration // of the first result
}

func (w *starts) order(ctx context.Context, s session.Session) (session.Session, error) {
	var in orderInput
	i, _ := flow.RunInfo(ctx)
	if err := json.Unmarshal(i.Input, &in); err != nil {
		return s, err
	}
	var all []flow.Started
	for _, t := range in.Start {
		one, err := flow.Start(ctx, t)
		if err != nil {
			return s, err
		}
		all = append(all, one)
	}
	for _, one := range all {
		if in.Forget {
			break
		}
		end, err := one.Result(ctx, in.Timeout)
		if errors.Is(err, run.ErrExpired) {
			end, err = one.Result(ctx, 0)
		}
		if err != nil {
			return s, err
		}
		text := ""
		if end.Err != nil {
			text = end.Err.Error()
		}
		s = s.With(session.AssistantText(strings.TrimSpace(fmt.Sprintf("%s %s %q %s %s", s.Text(), end.State, end.Output, end.Code, text))))
	}
	return s, nil
}

func (w *starts) pay(ctx context.Context, s session.Session) (session.Session, error) {
	i, _ := flow.RunInfo(ctx)
	if _, err := flow.Do(ctx, "pay", func(context.Context) (int, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.paid[string(i.Input)]++
		return w.paid[string(i.Input)], nil
	}, tool.NonIdempotent); err != nil {
		return s, err
	}
	if strings.Contains(string(i.Input), "ask") {
		if _, err := flow.Await[string](ctx, "go on?", nil); err != nil {
			return s, err
		}
	}
	return s.With(session.AssistantText("paid " + string(i.Input))), nil
}

func (w *starts) node(t *testing.T, store string) (*Instance, *client.Client) {
	t.Helper()
	offer := func(name string, f flow.Func) flow.Registration {
		return flow.Registration{Name: name, Revision: "1", New: func() flow.Workflow { return f }}
	}
	n := must.Get(Start(t.Context(), &Options{
		Store: store, NATS: NATS{Level: "lazy", Port: -1}, Fleet: Fleet{Pool: "default"}, Workflows: []flow.Registration{offer("order", w.order), offer("pay", w.pay)},
	}))(t)
	return n, must.Get(n.Client(t.Context()))(t)
}

func submitOrder(t *testing.T, c *client.Client, id run.ID, in orderInput) {
	t.Helper()
	must.Get(c.Submit(t.Context(), "order", messages.Task{ID: id, Input: must.Get(json.Marshal(in))(t)}))(t)
}

// state waits until a run is in a state.
func inState(t *testing.T, c *client.Client, id run.ID, want run.State) messages.RunInfo {
	t.Helper()
	for {
		if i, err := c.Runs.Get(t.Context(), id); err == nil && i.State == want {
			return i
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestStartedRuns: over NATS, a run starts others and gets their outcomes, also of those
// that no node takes. They do not end with it.
func TestStartedRuns(t *testing.T) {
	t.Parallel()
	w := &starts{paid: map[string]int{}}
	store := t.TempDir()
	n, c := w.node(t, store)
	pay := func(id run.ID, in string) flow.Task {
		return flow.Task{Workflow: "pay", ID: id, Input: json.RawMessage(in)}
	}

	submitOrder(t, c, "one", orderInput{Start: []flow.Task{pay("", `1`), pay("mine", `2`), {Workflow: "nothing"}, {Workflow: "pay", ID: "over", Budget: run.Budget{Steps: -1}}}})
	r := must.Get(c.Wait(t.Context(), "one"))(t)
	for _, want := range []string{`succeeded "paid 1"`, `succeeded "paid 2"`, `failed "" unknown_workflow run`, `failed "" malformed run over has failed: task: field budget.steps: -1 is negative`} {
		if r.State != run.Succeeded || !strings.Contains(r.Output, want) {
			t.Errorf("the starter is %s with %q %s, want %q", r.State, r.Output, r.Error, want)
		}
	}

	// The id belongs to the run of another body, also while both are new.
	if i := must.Get(c.Runs.Get(t.Context(), "one"))(t); len(i.Starts) != 4 || i.Starts[1] != "mine" {
		t.Errorf("the starter shows the runs %q", i.Starts)
	}
	if i := must.Get(c.Runs.Get(t.Context(), "mine"))(t); i.StartedBy == nil || i.StartedBy.Run != "one" || i.StartedBy.Step != "1" || i.Via != "one" {
		t.Errorf("a started run shows its starter as %+v, via %q", i.StartedBy, i.Via)
	}
	submitOrder(t, c, "two", orderInput{Start: []flow.Task{pay("mine", `3`)}})
	if r := must.Get(c.Wait(t.Context(), "two"))(t); !strings.Contains(r.Output, "key_reused") {
		t.Errorf("an id of another run: %+v", r)
	}

	// It goes on when its starter is cancelled, and the node that runs both is replaced.
	submitOrder(t, c, "three", orderInput{Start: []flow.Task{pay("asks", `"ask"`), pay("asks-too", `"ask too"`)}, Timeout: time.Nanosecond})
	inState(t, c, "asks", run.Waiting)
	inState(t, c, "asks-too", run.Waiting)
	submitOrder(t, c, "four", orderInput{Start: []flow.Task{pay("alone", `"ask alone"`)}})
	inState(t, c, "alone", run.Waiting)
	must.Report(t, c.Runs.Cancel(t.Context(), "four", messages.Control{Reason: "enough"}))
	must.Get(c.Wait(t.Context(), "four"))(t)
	inState(t, c, "three", run.Waiting)
	c.Close()
	must.Report(t, n.Close())
	n, c = w.node(t, store)
	defer func() { c.Close(); must.Report(t, n.Close()) }()
	for _, id := range []run.ID{"asks-too", "asks", "alone"} {
		i := inState(t, c, id, run.Waiting)
		must.Report(t, c.Questions.Answer(t.Context(), id, messages.Control{Step: i.Waits[0].Step, Value: json.RawMessage(`"yes"`)}))
		if r := must.Get(c.Wait(t.Context(), id))(t); r.State != run.Succeeded {
			t.Errorf("%s: %+v", id, r)
		}
	}
	if r := must.Get(c.Wait(t.Context(), "three"))(t); r.Output != `succeeded "paid \"ask\"" succeeded "paid \"ask too\""` {
		t.Errorf("after another node: %s %q %s", r.State, r.Output, r.Error)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for in, times := range w.paid {
		if times != 1 {
			t.Errorf("pay %s happened %d times", in, times)
		}
	}
	if len(w.paid) != 5 {
		t.Errorf("the runs paid %v", w.paid)
	}
}

// TestStartedByIsTheFleets: a client cannot name a run as the starter of its task.
func TestStartedByIsTheFleets(t *testing.T) {
	t.Parallel()
	w := &starts{paid: map[string]int{}}
	n, c := w.node(t, t.TempDir())
	defer func() { c.Close(); must.Report(t, n.Close()) }()
	task := messages.Task{ID: "forged", Input: json.RawMessage(`1`), StartedBy: &run.Starter{Run: "one", Session: "s", Step: "0"}}
	_, err := c.Submit(t.Context(), "pay", task)
	if err == nil {
		_, err = c.Wait(t.Context(), "forged")
	}
	if !errors.Is(err, run.ErrMalformed) || !strings.Contains(err.Error(), "started_by") {
		t.Errorf("a forged starter: %v", err)
	}
}
