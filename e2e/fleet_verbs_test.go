//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/evidence/audit"
)

// one submits a task until it is acknowledged, sometimes again, performs the run's action,
// and waits a while for the result.
func (l *clients) one(ctx context.Context, t *task) {
	for !l.submit(ctx, t) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	if l.chance(10) && l.submit(ctx, t) { // duplicates have no effect
		l.did("same body again")
	}
	switch t.Deed {
	case deedCancel:
		l.linger(ctx, time.Second)
		l.do(ctx, t, "cancel", map[string]any{"reason": "not needed"}, nil)
	case deedHint, deedCutIn:
		l.hint(ctx, t)
	case deedApart:
		l.apart(ctx, t)
	case deedRebudget:
		l.rebudget(ctx, t)
	}
	if t.Workflow == "listens" {
		l.send(ctx, t)
	}
	l.mu.Lock()
	arrived := l.arrived[t.ID]
	l.mu.Unlock()
	select {
	case <-arrived:
		l.after(ctx, t)
	case <-ctx.Done():
	case <-time.After(10 * time.Second): // others may do better
	}
}

// did counts an acknowledged action.
func (l *clients) did(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deeds[what]++
}

// do sends a verb to a run. moot returns the reason why it may be rejected although the run
// is open; nil if it may not.
func (l *clients) do(ctx context.Context, t *task, verb string, body map[string]any, moot func() string) error {
	// A session can be put into quarantine at any state of the run.
	ends := verb != "quarantine" && verb != "release"
	return l.ask(ctx, question{kind: verb, run: t.ID, ends: ends, moot: moot, send: func(ctx context.Context) error {
		start := time.Now()
		err := l.control(ctx, t.ID, verb, body)
		l.mu.Lock()
		if err == nil {
			l.deeds[verb]++
			t.done = t.done || verb == t.Deed || verb == "message" || verb == "quarantine"
		}
		l.mu.Unlock()
		l.write(verb, start, map[string]any{"run": t.ID, "body": body}, err)
		return err
	}})
}

// hint sends a message to a run at work, twice with one id.
func (l *clients) hint(ctx context.Context, t *task) {
	l.linger(ctx, 300*time.Millisecond)
	body := map[string]any{"id": "h" + t.ID, "text": hintFor(t.ID)}
	if t.Deed == deedCutIn {
		body["interrupt"] = true
	}
	for range 2 {
		if l.do(ctx, t, "message", body, nil) == nil && t.Deed == deedCutIn {
			l.did("interrupt")
		}
	}
}

func hintFor(id string) string { return "hint for " + id }

// apart quarantines the session of a run, and releases it after a while.
func (l *clients) apart(ctx context.Context, t *task) {
	l.linger(ctx, 300*time.Millisecond)
	if l.do(ctx, t, "quarantine", map[string]any{"reason": "it looks odd"}, nil) == nil {
		l.mu.Lock()
		t.apart = true
		l.mu.Unlock()
		l.shows(ctx, t, true)
	}
	sleep(ctx, l.upTo(time.Second))
	l.release(ctx, t)
}

// release ends the quarantine of a session, whether or not its request was acknowledged. If
// that fails now, it is done after everything is healed.
func (l *clients) release(ctx context.Context, t *task) {
	for l.lift(ctx, t, "it was looked at") != nil && ctx.Err() == nil {
		r, err := l.info(ctx, t.ID)
		if err == nil && r.Quarantine == "" {
			return
		}
		sleep(ctx, 200*time.Millisecond)
	}
	l.shows(ctx, t, false)
}

// lift requests the release of a session once.
func (l *clients) lift(ctx context.Context, t *task, reason string) error {
	err := l.do(ctx, t, "release", map[string]any{"reason": reason}, func() string {
		if t.apart {
			return ""
		}
		return "it was not quarantined"
	})
	if err == nil {
		l.mu.Lock()
		t.apart = false
		l.mu.Unlock()
	}
	return err
}

// info queries the status of a run.
func (l *clients) info(ctx context.Context, id string) (r runInfo, err error) {
	data, err := l.query(ctx, "run", map[string]any{"run": id})
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err
}

// query sends a query, which does not require a run that has begun.
func (l *clients) query(ctx context.Context, name string, body map[string]any) (data []byte, err error) {
	err = l.ask(ctx, question{kind: "query", send: func(ctx context.Context) (err error) {
		data, err = l.request(ctx, "rath.query.default."+name, body)
		return err
	}})
	return data, err
}

// shows waits until everybody can see that the session of a run is quarantined, or
// is not any more.
func (l *clients) shows(ctx context.Context, t *task, apart bool) {
	if !l.patient {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), untilTold)
	defer cancel()
	for {
		r, err := l.info(ctx, t.ID)
		if err == nil && (r.Quarantine != "") == apart {
			return
		}
		if ctx.Err() != nil {
			l.wrong("run %s was quarantined, or released, and nobody sees it after %v: %+v, %v", t.ID, untilTold, r, err)
			return
		}
		sleep(ctx, 50*time.Millisecond)
	}
}

// rebudget gives a run enough before it begins.
func (l *clients) rebudget(ctx context.Context, t *task) {
	for ctx.Err() == nil {
		err := l.do(ctx, t, "rebudget", map[string]any{"budget": map[string]int{"steps": 1000}, "reason": "it needs more"}, nil)
		if err == nil {
			l.mu.Lock()
			t.inTime = time.Now().Before(t.NotBefore)
			l.mu.Unlock()
			return
		}
		// Under faults no other client asks again.
		early := code(err) == "unknown_run" || strings.Contains(err.Error(), "its task waits for a node")
		if l.patient || proper(err) && !early {
			return
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// after performs the actions of users on an ended run: some use its id for another task,
// which is rejected, and some run it again.
func (l *clients) after(ctx context.Context, t *task) {
	switch {
	case t.Workflow == "fails" && t.outcome.State == "failed":
		l.again(ctx, t, "resume", map[string]any{"by": "load", "id": "go on"})
		return
	case !t.plain():
		return
	}
	l.mu.Lock()
	end := l.ends.draw(l.random)
	l.mu.Unlock()
	switch end {
	case 0:
		body := t.body()
		body["input"] = "something else"
		start := time.Now()
		err := l.ask(ctx, question{kind: "submit", send: func(ctx context.Context) error { return l.publish(ctx, t.Workflow, body) }})
		if err == nil {
			l.mu.Lock()
			t.reused = true
			l.deeds["another body under the same id"]++
			l.mu.Unlock()
		}
		l.write("reuse", start, t.ID, err)
	case 1:
		l.again(ctx, t, "rerun", map[string]any{})
	}
}

// known reports whether this client submitted a run. It is called with the lock held.
func (l *clients) known(id string) bool { return l.tasks[id] != nil && l.tasks[id].Workflow != "" }

// word is a message to a session, sent at any state of it.
type word struct {
	name, text string
	acked      bool
}

// talk sends a message to a named session. Each message is sent once: in a session without
// an open run it becomes a chunk at once, without an id.
func (l *clients) talk(ctx context.Context) {
	l.mu.Lock()
	w := &word{name: fmt.Sprintf("talk%d", l.random.IntN(talks)), text: fmt.Sprintf("word %d", len(l.words))}
	l.words = append(l.words, w)
	l.mu.Unlock()
	start := time.Now()
	err := l.ask(ctx, question{kind: "session message", moot: l.unused(w.name), send: func(ctx context.Context) error {
		_, err := l.request(ctx, "rath.ctl.default.anonymous.session."+w.name+".message", map[string]any{"by": "load", "id": fmt.Sprint("w", start.UnixNano()), "text": w.text})
		return err
	}})
	l.mu.Lock()
	if w.acked = err == nil; w.acked {
		l.deeds["message to a session"]++
	}
	l.mu.Unlock()
	l.write("word", start, map[string]string{"session": w.name, "text": w.text}, err)
}

// control sends a verb to a run and notes that it was acknowledged.
func (l *clients) control(ctx context.Context, id, verb string, body map[string]any) error {
	body = maps.Clone(body)
	body["by"] = "load"
	_, err := l.request(ctx, "rath.ctl.default.anonymous."+id+"."+verb, body)
	if err == nil {
		text, ok := body["reason"].(string)
		if !ok {
			text, _ = body["text"].(string)
		}
		l.mu.Lock()
		l.tell(audit.Told{Op: "control", Run: id, Verb: verb, By: "load", Text: text})
		l.mu.Unlock()
	}
	return err
}
