//go:build e2e && linux

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// runInfo is the status of a run in a query.
type runInfo struct {
	Run      string `json:"run"`
	State    string `json:"state"`
	Workflow string `json:"workflow"`
	// Quarantine is the reason for the session's quarantine.
	Quarantine string `json:"quarantine"`
	Waits      []struct {
		Kind string `json:"kind"`
		Step string `json:"step"`
	} `json:"waits"`
	Review *struct {
		Call   string `json:"call"`
		Code   string `json:"code"`
		Reason string `json:"reason"`
		Tool   string `json:"tool"`
	} `json:"review"`
}

// decide resolves the runs that wait for an operator, by the witness: a call that it has
// seen has happened.
func (l *clients) decide(ctx context.Context) {
	data, err := l.query(ctx, "runs", map[string]any{"states": []string{"needs_review"}, "limit": 1000})
	var all struct {
		Runs []runInfo `json:"runs"`
	}
	if err != nil || json.Unmarshal(data, &all) != nil || len(all.Runs) == 0 {
		return
	}
	seen, err := sightings(l.witness)
	if err != nil {
		l.wrong("%v", err)
		return
	}
	happened := map[string]bool{}
	for _, s := range seen {
		happened[cmp.Or(s.Call, s.Run+" "+s.Tool)] = true
	}
	for _, r := range all.Runs {
		body := map[string]any{"by": "load", "decision": "again", "reason": "the witness has not seen it"}
		if r.Review != nil && r.Review.Code == "poison" {
			if r.Workflow != poisonous {
				l.wrong("run %s of %s is in review as poison: %s", r.Run, r.Workflow, r.Review.Reason)
			}
			body = map[string]any{"by": "load", "decision": "fail", "reason": "it ends its nodes"}
		}
		if r.Review != nil && happened[cmp.Or(r.Review.Call, r.Run+" "+r.Review.Tool)] {
			body = map[string]any{"by": "load", "decision": "happened", "reason": "the witness has seen it", "value": "pay done"}
		}
		l.resolve(ctx, r, body)
	}
}

// resolve decides about a run. The query may not show yet that it is decided.
func (l *clients) resolve(ctx context.Context, r runInfo, body map[string]any) {
	call := r.Run
	if r.Review != nil && r.Review.Call != "" {
		call = r.Review.Call
	}
	l.mu.Lock()
	l.begins(r.Run)
	l.mu.Unlock()
	decided := func() string {
		if l.resolved[call] {
			return "it was decided"
		}
		return ""
	}
	err := l.ask(ctx, question{kind: "resolve", run: r.Run, ends: true, moot: decided, send: func(ctx context.Context) error {
		start := time.Now()
		err := l.control(ctx, r.Run, "resolve", body)
		l.write("resolve", start, map[string]any{"run": r, "decision": body["decision"]}, err)
		return err
	}})
	if err == nil {
		l.mu.Lock()
		l.resolved[call] = true
		l.mu.Unlock()
	}
}

// answer answers the questions of runs: with a yes most of the time, and to
// some with a change.
func (l *clients) answer(ctx context.Context) {
	data, err := l.query(ctx, "runs", map[string]any{"states": []string{"waiting"}, "limit": 1000})
	var all struct {
		Runs []runInfo `json:"runs"`
	}
	if err != nil || json.Unmarshal(data, &all) != nil {
		return
	}
	for _, r := range all.Runs {
		l.mu.Lock()
		t := l.tasks[r.Run]
		l.begins(r.Run)
		l.mu.Unlock()
		if len(r.Waits) != 1 || t == nil {
			continue // a branch; or for branches
		}
		w := r.Waits[0]
		a := answer{verb: "approve"}
		switch {
		case w.Kind == "response":
			a = answer{verb: "respond", value: fmt.Sprintf("%q", fmt.Sprint(l.upTo(1000).Nanoseconds(), " for ", r.Run))}
		case w.Kind != "approval":
			continue // for the time
		case l.chance(4):
			a.verb = "reject"
		case l.chance(2):
			a.value = fmt.Sprintf(`{"loud":%d}`, 2+l.upTo(100).Nanoseconds())
		}
		body := map[string]any{"step": w.Step, "reason": "the test says so"}
		if a.value != "" {
			body["value"] = json.RawMessage(a.value)
		}
		a.acked = l.do(ctx, t, a.verb, body, func() string {
			if slices.ContainsFunc(t.answers[w.Step], func(a answer) bool { return a.acked }) {
				return "the question was decided" // which the query did not show yet
			}
			return ""
		}) == nil
		if a.acked && a.verb == "approve" && a.value != "" {
			l.did("approve with a change")
		}
		l.mu.Lock()
		if t.answers == nil {
			t.answers = map[string][]answer{}
		}
		t.answers[w.Step] = append(t.answers[w.Step], a)
		l.mu.Unlock()
	}
}

// open returns the acknowledged tasks without a result.
func (l *clients) open() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range l.order {
		if t := l.tasks[id]; t.Acked && t.Result == "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// finish waits until every acknowledged task has a result, and queries those that were
// published while the connection was down.
func (l *clients) finish(ctx context.Context) error {
	for {
		l.decide(ctx)
		l.answer(ctx)
		l.expectCleanups()
		ids := l.open()
		for _, id := range ids {
			l.mu.Lock()
			t := l.tasks[id]
			l.mu.Unlock()
			if t.Deed == deedApart && !l.patient { // its release may have been lost, or too early
				l.lift(ctx, t, "everything was looked at")
			}
		}
		if len(ids) == 0 {
			return nil
		}
		for _, id := range ids {
			if l.patient {
				break
			}
			if data, err := l.request(ctx, "rath.query.default.result", map[string]string{"run": id}); err == nil {
				l.told(data)
			}
		}
		select {
		case <-ctx.Done():
			var story strings.Builder
			open := l.open()
			for _, id := range open[:min(len(open), 10)] {
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
				data, err := l.request(last, "rath.query.default.run", map[string]string{"run": id})
				cancel()
				fmt.Fprintf(&story, "\n%s: %s %v", id, data, err)
			}
			return fmt.Errorf("%d acknowledged tasks have no result: %v%s", len(open), open, story.String())
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// sightings reads the witness file.
func sightings(name string) ([]sighting, error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []sighting
	for line := range strings.Lines(string(data)) {
		var s sighting
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			return nil, fmt.Errorf("witness: %w: %q", err, line)
		}
		all = append(all, s)
	}
	return all, nil
}
