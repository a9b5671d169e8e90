//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// leave writes a sighting, in one write, so that lines of other nodes do not mix.
func leave(s sighting) error {
	s.Node, s.PID, s.Time = os.Getenv("RATH_FLEET_NAME"), os.Getpid(), time.Now()
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(os.Getenv(envWitness), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// act is the work of a step that must not happen twice. It leaves a sighting.
func act(ctx context.Context) (string, error) {
	in, _ := flow.RunInfo(ctx)
	err := leave(sighting{Tool: in.Name, Run: string(in.Run), Step: string(in.Path), Attempt: in.Attempt, Effect: tool.NonIdempotent.String()})
	stall()
	return in.Name + " done", err
}

// starts starts two runs, works, and waits for their ends, both at the same time.
func starts(ctx context.Context, worker *flow.Agent, s session.Session, prompt string) (session.Session, error) {
	var all []flow.Started
	for _, name := range []string{"a", "b"} {
		in, err := json.Marshal("branch " + name + " of " + prompt)
		if err != nil {
			return s, err
		}
		one, err := flow.Start(ctx, flow.Task{Workflow: "work", Input: in})
		if err != nil {
			return s, err
		}
		all = append(all, one)
	}
	s, err := worker.Forward(ctx, s.With(session.UserText("branch of "+prompt)))
	if err != nil {
		return s, err
	}
	ended := make([]*flow.On[flow.RunEnd], len(all))
	var waits []func(context.Context) error
	for i, one := range all {
		ended[i] = flow.OnResult(one)
		waits = append(waits, func(ctx context.Context) error {
			for {
				first, err := flow.Select(ctx, flow.OnTimer(time.Minute), ended[i])
				if err != nil || first == ended[i] {
					return err
				}
			}
		})
	}
	err = flow.Gather(ctx, nil, waits...)
	for _, one := range ended {
		s = s.With(session.UserText("it " + one.Value.State.Past()))
	}
	return s, err
}

// books books twice, each with a compensation, and then fails or waits for a cancel.
func books(ctx context.Context, s session.Session, prompt string) (session.Session, error) {
	s = s.With(session.UserText(prompt))
	for _, name := range []string{"room", "car"} {
		undo := func(ctx context.Context) error {
			_, err := act(ctx)
			return err
		}
		if err := flow.Defer(ctx, "undo "+name, undo, flow.DeferOptions{Effect: tool.NonIdempotent}); err != nil {
			return s, err
		}
		if _, err := flow.Do(ctx, "book "+name, act, tool.NonIdempotent); err != nil {
			return s, err
		}
	}
	if strings.HasPrefix(prompt, "fail") {
		return s, errors.New("nothing is left")
	}
	_, err := flow.Select(ctx, flow.OnTimer(time.Hour), flow.OnTimer(time.Second))
	return s, err
}

// holds fails at its first try. Its task holds the run for an operator.
func holds(ctx context.Context, s session.Session, prompt string) (session.Session, error) {
	_, err := flow.Do(ctx, "arrive", func(ctx context.Context) (string, error) {
		if in, _ := flow.RunInfo(ctx); in.Try == 1 {
			return "", errors.New("it has not come yet")
		}
		return "it came", nil
	}, tool.Idempotent, tool.Retry{Times: 1})
	return s.With(session.UserText(prompt)), err
}

// listens awaits the two events of its task in the iterations of a loop: each once, and in
// their order.
func listens(ctx context.Context, s session.Session, prompt string) (session.Session, error) {
	var got struct{ N int }
	return flow.Loop(ctx, "events", s.With(session.UserText(prompt)), &got, func(ctx context.Context, s session.Session) (session.Session, bool, error) {
		e, err := flow.AwaitEvent(ctx, eventName, prompt, nil)
		if err != nil {
			return s, false, err
		}
		before := got.N
		if err := e.Decode(&got.N); err != nil || got.N != before+1 {
			return s, false, fmt.Errorf("event %d came as %s: %w", before+1, e.Value, err)
		}
		return s, got.N < 2, nil
	})
}

// eventName is the name of the events that clients publish for the workflow "listens".
const eventName = "load.came"

// send publishes the events of a task, the first one twice. It goes on after the end of the
// load: nobody else sends them, and the run waits.
func (l *clients) send(ctx context.Context, t *task) {
	ctx = context.WithoutCancel(ctx)
	l.mu.Lock()
	arrived := l.arrived[t.ID]
	l.mu.Unlock()
	for _, n := range []int{1, 1, 2} {
		l.linger(ctx, time.Second)
		body := map[string]any{"id": fmt.Sprint(t.ID, "/", n), "event": eventName, "key": t.Prompt, "value": n}
		for sent := false; !sent; {
			start := time.Now()
			err := l.ask(ctx, question{kind: "publish", send: func(ctx context.Context) error {
				_, err := l.request(ctx, "rath.ctl.default.anonymous.event.publish", body)
				return err
			}})
			l.write("publish", start, map[string]any{"run": t.ID, "event": n}, err)
			if sent = err == nil; sent {
				l.did("publish")
				break
			}
			select {
			case <-arrived: // it was cancelled
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	}
}

const notThere = "nobody is at home"

// fails works, and then fails unless it goes on for a failed run.
func fails(ctx context.Context, worker *flow.Agent, s session.Session, prompt string) (session.Session, error) {
	s, err := worker.Forward(ctx, s.With(session.UserText("branch of "+prompt)))
	if err != nil {
		return s, err
	}
	_, err = flow.Do(ctx, "deliver", func(ctx context.Context) (bool, error) {
		if in, _ := flow.RunInfo(ctx); !strings.Contains(string(in.Run), "-r") {
			return false, flow.Permanent(errors.New(notThere))
		}
		return true, nil
	}, tool.Idempotent)
	return s, err
}

// again sends a verb that starts a run in place of an ended one, and expects the run.
func (l *clients) again(ctx context.Context, t *task, verb string, body map[string]any) {
	start := time.Now()
	var told struct {
		Note string `json:"note"`
	}
	err := l.ask(ctx, question{kind: verb, run: t.ID, send: func(ctx context.Context) error {
		data, err := l.request(ctx, "rath.ctl.default.anonymous."+t.ID+"."+verb, body)
		if err == nil {
			err = json.Unmarshal(data, &told)
		}
		if err == nil && told.Note == "" {
			err = fmt.Errorf("answer %s names no run", data)
		}
		return err
	}})
	if err == nil {
		l.mu.Lock()
		l.deeds[verb]++
		l.expect(told.Note, t.Workflow, t.Prompt)
		l.mu.Unlock()
	}
	l.write(verb, start, map[string]string{"run": t.ID, "new": told.Note}, err)
}

// expect adds a run that the fleet has promised. It is called with the lock held.
func (l *clients) expect(id, workflow, prompt string) {
	if !l.known(id) {
		l.add(&task{ID: id, Workflow: workflow, Prompt: prompt, Acked: true, derived: true})
		l.tell(audit.Told{Op: "submit", Run: id})
	}
}

// expectCleanups adds the cleanup runs of the ended runs that have something to undo.
func (l *clients) expectCleanups() {
	seen, err := sightings(l.witness)
	if err != nil {
		l.wrong("%v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range seen {
		if t := l.tasks[s.Run]; t != nil && s.Tool == "book room" && t.outcome.State != "" && t.outcome.State != "succeeded" {
			l.expect(string(run.CleanupOf(run.ID(t.ID))), "books", "cleanup")
		}
	}
}

// compensated checks that the bookings of runs which did not succeed were undone, the last one
// first, and only those. It is called with the lock of the load held.
func (w *world) compensated(seen []sighting) {
	w.t.Helper()
	first := map[string]time.Time{} // of each act
	for _, s := range seen {
		if key := s.Run + " " + s.Tool; s.Run != "" && (first[key].IsZero() || s.Time.Before(first[key])) {
			first[key] = s.Time
		}
	}
	undone := 0
	for _, id := range w.load.order {
		t := w.load.tasks[id]
		if t.Workflow != "books" || t.derived || t.outcome.State == "" {
			continue
		}
		var undos []time.Time
		for _, name := range []string{"room", "car"} {
			book, undo := first[id+" book "+name], first[string(run.CleanupOf(run.ID(id)))+" undo "+name]
			switch failed := t.outcome.State != "succeeded"; {
			case failed && !book.IsZero() && undo.IsZero():
				w.fail("run %s %s, and its booking of a %s is not undone", id, t.outcome.State, name)
			case !failed && !undo.IsZero():
				w.fail("run %s succeeded, and its booking of a %s is undone", id, name)
			case !undo.IsZero():
				undos = append(undos, undo)
			}
		}
		undone += len(undos)
		if len(undos) == 2 && undos[0].Before(undos[1]) {
			w.fail("run %s: the first booking was undone first", id)
		}
	}
	w.t.Logf("%d bookings undone", undone)
}

// resumed checks that a run which goes on for another one succeeded, and that it asked the
// model for nothing that is recorded. It is called with the lock of the load held.
func (w *world) resumed(requests []scripted.Entry) {
	w.t.Helper()
	for _, id := range w.load.order {
		t := w.load.tasks[id]
		of, _, is := strings.Cut(id, "-r")
		if before := w.load.tasks[of]; !is || before == nil || !strings.Contains(before.outcome.Error, notThere) {
			continue
		}
		if t.outcome.State != "succeeded" && t.outcome.State != "" {
			w.fail("run %s, which goes on for %s, %s: %s", id, of, t.outcome.State, t.Result)
		}
		for _, r := range requests {
			if strings.HasPrefix(r.Step, id+"/") {
				w.fail("run %s, which goes on at the last step of %s, asked the model: %s", id, of, r.Step)
			}
		}
	}
}
