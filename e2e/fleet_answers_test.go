//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// question is a request of a client, with the client's knowledge about a correct answer.
type question struct {
	kind string
	run  string // that it is about, "" for none
	// ends is set if the end of the run is a reason for a rejection.
	ends bool
	// moot, if set, returns the reason why a rejection is correct, or "". It is called with
	// the lock held.
	moot func() string
	send func(ctx context.Context) error
}

// tally counts the outcomes of the requests of one kind.
type tally struct {
	sent, done, failed int
	early              int            // sent before the client knew that the run had begun, and again
	refused            map[string]int // rightly, by the reason
	last               error          // why the last one failed
}

const (
	// untilBegun bounds how long a client retries a request that has to wait until a run
	// begins. untilTold bounds the delay between an event and its report.
	untilBegun = 20 * time.Second
	untilTold  = 10 * time.Second
)

// ask sends a request and judges the answer by the client's knowledge. A patient client
// retries while it knows only that the task was submitted.
func (l *clients) ask(ctx context.Context, q question) error {
	if l.patient {
		ctx = context.WithoutCancel(ctx) // every request is answered
	}
	for end := time.Now().Add(untilBegun); ; {
		l.mu.Lock()
		known := q.run == "" || l.begun[q.run]
		l.mu.Unlock()
		err := q.send(ctx)
		answered := time.Now()
		if l.patient && !known && code(err) == "wrong_state" && answered.Before(end) {
			l.count(q.kind, func(t *tally) { t.early++ })
			sleep(ctx, 50*time.Millisecond)
			continue
		}
		why := ""
		if err != nil {
			why = l.right(ctx, q, known, answered, err)
		}
		l.count(q.kind, func(t *tally) {
			switch {
			case err == nil:
				t.done++
			case why != "":
				t.refused[why]++
			case ctx.Err() == nil: // else the client has ended
				t.failed++
				t.last = fmt.Errorf("run %q: %w", q.run, err)
			}
		})
		return err
	}
}

// right returns the reason to accept a rejection, or "" if the request had to be done.
// During faults the client knows too little, and accepts each rejection that means too
// late, or not yet.
func (l *clients) right(ctx context.Context, q question, known bool, answered time.Time, err error) string {
	if !l.patient {
		if proper(err) {
			return "not any more, or not yet"
		}
		return ""
	}
	// An id that was acknowledged is never unknown, nor a session with a run.
	want := "wrong_state"
	if q.run == "" {
		want = "not_found"
	}
	if code(err) != want || !known {
		return ""
	}
	if q.moot != nil {
		l.mu.Lock()
		why := q.moot()
		l.mu.Unlock()
		if why != "" {
			return why
		}
	}
	if q.ends && l.endedBy(ctx, q.run, answered) {
		return "the run had ended"
	}
	return ""
}

// endedBy reports whether a run had ended at a time, according to its result, which may
// arrive later.
func (l *clients) endedBy(ctx context.Context, run string, at time.Time) bool {
	l.mu.Lock()
	arrived := l.arrived[run]
	l.mu.Unlock()
	if arrived == nil {
		return false
	}
	select {
	case <-arrived:
	case <-time.After(untilTold):
		return false
	case <-ctx.Done():
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tasks[run].outcome.Ended <= at.UnixMilli()
}

// count adds a request that was sent to the tally of its kind.
func (l *clients) count(kind string, add func(t *tally)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tallies[kind]
	if t == nil {
		t = &tally{refused: map[string]int{}}
		l.tallies[kind] = t
	}
	t.sent++
	add(t)
}

// code returns the code of an error response, or "".
func code(err error) string {
	if err == nil {
		return ""
	}
	var e struct {
		Code string `json:"code"`
	}
	_, text, is := strings.Cut(err.Error(), "answer: ")
	if !is || json.Unmarshal([]byte(text), &e) != nil {
		return ""
	}
	return e.Code
}

// proper reports whether a request was answered: it was done, or it cannot be
// done any more, or not yet.
func proper(err error) bool {
	return err == nil || slices.Contains([]string{"wrong_state", "unknown_run", "not_found"}, code(err))
}

// hear takes an event: its run is in a log, and so is its session.
func (l *clients) hear(m *nats.Msg) {
	var e struct {
		Kind string `json:"kind"`
		Run  string `json:"run"`
	}
	if err := json.Unmarshal(m.Data, &e); err != nil || e.Run == "" || e.Kind == "" {
		l.wrong("an event that cannot be read: %v: %s", err, m.Data)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events++
	if e.Kind == "refused" { // it had no effect
		return
	}
	l.begins(e.Run)
	l.over[e.Run] = l.over[e.Run] || e.Kind == "ended"
}

// begins records that a run is in a log. It is called with the lock held.
func (l *clients) begins(run string) {
	l.begun[run] = true
	if t := l.tasks[run]; t != nil && t.Session != "" {
		l.used[t.Session] = true
	}
}

// unused returns the reason why a named session may not exist: at the time of this call, no
// run was known to have worked on it.
func (l *clients) unused(name string) func() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used[name] {
		return nil
	}
	return func() string { return "nobody had worked there" }
}

// unheard waits until the ends of all runs have arrived over the subscriptions to their
// events, and returns the runs whose end has not.
func (l *clients) unheard(ctx context.Context) (ids []string) {
	for end := time.Now().Add(untilTold); ; {
		l.mu.Lock()
		ids = ids[:0]
		for _, id := range l.order {
			if t := l.tasks[id]; t.outcome.Chain != nil && !l.over[id] {
				ids = append(ids, id)
			}
		}
		l.mu.Unlock()
		if len(ids) == 0 || time.Now().After(end) || ctx.Err() != nil {
			return ids
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// needed are the kinds of requests of which a load has some that were done.
var needed = []string{
	"submit", "cancel", "message", "quarantine", "release", "rebudget", "approve", "reject", "respond", "rerun", "resume", "session message", "session read", "query",
}

// undone lists the kinds of needed requests of which none was done yet.
func (l *clients) undone() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(needed), func(kind string) bool { return l.tallies[kind] != nil && l.tallies[kind].done > 0 })
}

// asked fails for each kind of request of which one was not done that had to
// be, or none was done.
func (w *world) asked() {
	w.t.Helper()
	if kinds := w.load.undone(); len(kinds) > 0 {
		w.fail("no request of these kinds was done, which shows nothing of them: %s", strings.Join(kinds, ", "))
	}
	w.load.mu.Lock()
	defer w.load.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(w.load.tallies)) {
		if t := w.load.tallies[kind]; t.failed > 0 {
			w.fail("%d of %d requests %q were not done (the last one: %v)", t.failed, t.sent, kind, t.last)
		}
	}
}

// sums returns the outcomes of the requests. It is called with the lock held.
func (l *clients) sums() string {
	all := tally{refused: map[string]int{}}
	var out strings.Builder
	line := func(kind string, t *tally) {
		right := 0
		for _, n := range t.refused {
			right += n
		}
		fmt.Fprintf(&out, "\n%-16s %5d sent, %5d had their effect, %3d came before the run was known to have begun and were sent again, %3d refused rightly, %d failed",
			kind, t.sent, t.done, t.early, right, t.failed)
		if right > 0 {
			fmt.Fprintf(&out, "; refused because %v", t.refused)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(l.tallies)) {
		t := l.tallies[kind]
		line(kind, t)
		all.sent, all.done, all.early, all.failed = all.sent+t.sent, all.done+t.done, all.early+t.early, all.failed+t.failed
		for why, n := range t.refused {
			all.refused[why] += n
		}
	}
	line("all", &all)
	return out.String()
}
