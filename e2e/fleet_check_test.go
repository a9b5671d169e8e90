//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// check compares the records of clients, tools and logs.
func (w *world) check() {
	w.t.Helper()
	l := w.load
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.broken {
		w.fail("%s", b)
	}
	states, afters, attempts := map[string]int{}, map[string]int{}, 0
	acked := 0
	for _, id := range l.order {
		t := l.tasks[id]
		if t.Acked {
			acked++
		}
		states[t.outcome.State]++
		if before := l.tasks[t.After]; before != nil {
			word, _, _ := strings.Cut(t.Prompt, " ")
			afters[strings.TrimSpace(fmt.Sprint(t.Workflow, " ", word, " ", before.outcome.State, ": ", t.outcome.State, " ", t.outcome.Code))]++
		}
		if wrong := w.outcome(t); wrong != "" {
			w.fail("run %s (%s %q, %s) %s: %s", id, t.Workflow, t.Prompt, t.Deed, wrong, t.Result)
		}
	}
	if err := staleHead(l.heads); err != nil {
		w.fail("%v", err)
	}
	w.crashes()
	w.kept()
	seen, err := sightings(w.path("witness.jsonl"))
	if err != nil {
		w.fatal(err)
	}
	once := map[string]int{}
	for _, s := range seen {
		key := fmt.Sprint(s.Call, s.Run, " ", s.Step, " attempt ", s.Attempt)
		if once[key]++; once[key] == 2 {
			w.fail("tool %s: call %s was executed twice", s.Tool, key)
		}
		if s.Attempt > 1 {
			attempts++
		}
		run, _, _ := strings.Cut(s.Call, "/")
		if t := l.tasks[run]; t != nil {
			if s.Time.Before(t.NotBefore) {
				w.fail("run %s called %s %v before its time", run, s.Tool, t.NotBefore.Sub(s.Time))
			}
			if before := l.tasks[t.After]; before != nil && (before.Result == "" || s.Time.UnixMilli() < before.outcome.Ended) {
				w.fail("run %s called %s at %v, before the end of run %s: %s", run, s.Tool, s.Time, t.After, before.Result)
			}
			w.heeded(t, s)
		}
	}
	w.compensated(seen)
	if w.off == "" {
		entries, err := w.asks()
		if err != nil {
			w.fatal(err)
		}
		w.resumed(entries)
	}
	w.t.Logf("%d tasks, %d acknowledged, states %v; %d executions of tools, %d of them in a later attempt; %d heads read; %d events heard; %d model requests",
		len(l.order), acked, states, len(seen), attempts, l.asked, l.events, w.model.served.Load())
	w.t.Logf("runs after others: %v", afters)
	w.t.Logf("acknowledged besides: %v", l.deeds)
	w.t.Logf("requests:%s", l.sums())
	if acked < 5 {
		w.fail("only %d tasks were acknowledged: this shows nothing", acked)
	}
}

// outcome describes the error in a run's outcome, "" if there is none. It is called with
// the lock of the load held.
func (w *world) outcome(t *task) string {
	o := t.outcome
	if t.Deed == deedCancel && t.done && o.State != "" && o.State != "cancelled" {
		return "was cancelled, which was acknowledged, and ended otherwise"
	}
	if t.Workflow == poisonous { // it ends when an operator abandons its review
		if o.State != "failed" && o.State != "" {
			return "ends its nodes, and ended otherwise than by its review"
		}
		return ""
	}
	if wrong := w.preceded(t); wrong != "" {
		return wrong
	}
	switch o.State {
	case "succeeded", "":
	case "cancelled":
		if t.Deed != deedCancel {
			return "is cancelled, which nobody asked for"
		}
	case "timed_out":
		if t.Deadline.IsZero() || o.Ended < t.Deadline.UnixMilli() {
			return "timed out before its deadline"
		}
	case "failed":
		switch {
		case t.Workflow == "books" && strings.HasPrefix(t.Prompt, "fail "), t.Workflow == "fails" && !t.derived:
		case o.Code == "after_failed": // see preceded
		// A model that is sick for long enough makes runs fail.
		case w.model.ill.Load() && strings.Contains(o.Error, "llm: "):
		case o.Code == "budget_exceeded" && len(t.Budget) > 0 && !t.inTime:
		default:
			return "failed"
		}
	default:
		return "ended " + o.State
	}
	return ""
}

// preceded describes the error in the outcome of a run that begins after another one, "" if
// there is none. It is called with the lock of the load held.
func (w *world) preceded(t *task) string {
	failed := t.outcome.Code == "after_failed"
	before := w.load.tasks[t.After]
	if before == nil {
		if failed {
			return "begins after no other run, and failed after one"
		}
		return ""
	}
	must := strings.HasPrefix(t.Prompt, "after ")
	switch of := before.outcome; {
	case t.outcome.State == "", t.outcome.State == "cancelled":
	case of.State == "" || t.outcome.Ended < of.Ended:
		return "ended before run " + t.After + ": " + before.Result
	case failed != (must && of.State != "succeeded"):
		return "did not heed the end of run " + t.After + ": " + before.Result
	}
	return ""
}

// heeded checks that a call with an operator's decision was made as decided. It is called
// with the lock of the load held.
func (w *world) heeded(t *task, s sighting) {
	if s.Tool != "sound" || !strings.HasPrefix(t.Prompt, "gate") {
		return
	}
	for _, all := range t.answers {
		for _, a := range all {
			want := 1
			if a.value != "" {
				if _, err := fmt.Sscanf(a.value, `{"loud":%d}`, &want); err != nil {
					w.fail("answer %q: %v", a.value, err)
				}
			}
			switch {
			case !a.acked:
			case a.verb == "reject":
				w.fail("run %s made a call that was rejected: %+v", t.ID, s)
			case s.Loud != want:
				w.fail("run %s made the call %+v, and %s was approved", t.ID, s, a.value)
			}
		}
	}
}

// storing bounds the time until a reported result is stored.
const storing = 30 * time.Second

// stored compares the stored results with the reported ones.
func (w *world) stored(ctx context.Context) {
	w.t.Helper()
	_, js := operatorOf(w.t, w.f)
	s, err := stream(ctx, js, "RESULT")
	if err != nil {
		w.fatal(err)
	}
	w.load.mu.Lock()
	defer w.load.mu.Unlock()
	for _, id := range w.load.order {
		t := w.load.tasks[id]
		timeout := time.Duration(0)
		if t.Result != "" {
			timeout = storing // subscribers get a result before it is stored
		}
		m, err := last(ctx, s, "rath.run.default."+id+".result", timeout)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound) && t.Result == "" && !t.Acked:
		case err != nil:
			w.fail("the result of run %s is not stored: %v", id, err)
		case t.Result != "" && !follows(string(m.Data), t.Result):
			w.fail("the result of run %s is stored as\n%s\nand was told as\n%s", id, m.Data, t.Result)
		}
	}
}

// last returns the last message of a subject. It retries while there is none: the answering
// replica may lag behind.
func last(ctx context.Context, s jetstream.Stream, subject string, patience time.Duration) (*jetstream.RawStreamMsg, error) {
	for end := time.Now().Add(patience); ; sleep(ctx, 200*time.Millisecond) {
		m, err := s.GetLastMsgForSubject(ctx, subject)
		if !errors.Is(err, jetstream.ErrMsgNotFound) || ctx.Err() != nil || !time.Now().Before(end) {
			return m, err
		}
	}
}

// crashes looks into the logs of all processes for ends that no fault made.
func (w *world) crashes() {
	w.t.Helper()
	for _, p := range w.f.All() {
		data, err := os.ReadFile(p.Log)
		if err != nil {
			w.fatal(err)
		}
		for _, sign := range []string{"panic:", "fatal error:", "DATA RACE", "unexpected fault address"} {
			if _, after, found := strings.Cut(string(data), sign); found {
				w.fail("%s crashed: %s%.2000s", p.Name, sign, after)
			}
		}
	}
}

// transcripts compares each run's chunks in its session with those of an undisturbed run,
// and the clients' messages with the stored ones.
func (w *world) transcripts(ctx context.Context) {
	w.t.Helper()
	l := w.load
	l.mu.Lock()
	var ended []*task
	for _, id := range l.order {
		if t := l.tasks[id]; t.outcome.Session != "" {
			ended = append(ended, t)
		}
	}
	words, made := slices.Clone(l.words), map[string]bool{} // sessions with a name that are there
	for _, t := range ended {
		made[t.Session] = true
	}
	l.mu.Unlock()
	read := map[string][]row{}
	rows := func(id string) []row {
		if all, ok := read[id]; ok {
			return all
		}
		all, err := l.chunks(ctx, id)
		if err != nil {
			w.fail("read session %s: %v", id, err)
		}
		read[id] = all
		return all
	}
	for _, t := range ended {
		if ctx.Err() != nil {
			return
		}
		w.transcript(t, rows)
	}
	for _, one := range words {
		if !made[one.name] && !one.acked {
			continue // no task has worked there, so there is no session
		}
		n := count(rows(one.name), one.text)
		if n > 1 || n == 0 && one.acked {
			w.fail("%q (acknowledged: %v) is in session %s %d times", one.text, one.acked, one.name, n)
		}
	}
	w.letters(ctx)
}

func count(rows []row, text string) (n int) {
	for _, r := range rows {
		if r.Text == text {
			n++
		}
	}
	return n
}

// transcript checks the session that a run ended with.
func (w *world) transcript(t *task, read func(id string) []row) {
	w.t.Helper()
	rows := read(t.outcome.Session)
	if t.Deed == deedHint || t.Deed == deedCutIn {
		// Its time is undetermined, but it must arrive exactly once.
		if n := count(rows, hintFor(t.ID)); n > 1 || n == 0 && t.done {
			w.fail("the message to run %s, which %s (acknowledged: %v), is in its session %d times", t.ID, t.outcome.State, t.done, n)
		}
		return
	}
	if t.outcome.State != "succeeded" || strings.HasPrefix(t.Session, "talk") || t.Prompt == "cleanup" {
		return
	}
	if t.ForkOf != "" {
		w.rewound(t, rows, read)
	}
	var kinds []string
	for _, r := range rows {
		// In a shared session, only the run's own chunks count. The author's messages before
		// the first step have no run.
		if t.Session == "" && t.ForkOf == "" || r.Run == t.ID || r.Kind == "user" && (r.Text == t.Prompt || strings.HasSuffix(r.Text, " of "+t.Prompt)) {
			kinds = append(kinds, r.Kind)
		}
	}
	got, want := strings.Join(kinds, " "), chunksOf(t.Workflow, t.Prompt)
	if t.Workflow == "fanout" && w.model.ill.Load() {
		// A sick model fails branches, which does not fail the fan-out.
		got, want = got[:min(len(got), len(want))], want[:min(len(got), len(want))]
	}
	if got != want {
		w.fail("run %s (%s %q) left\n%s\nwant\n%s", t.ID, t.Workflow, t.Prompt, got, want)
	}
	for _, step := range slices.Sorted(maps.Keys(t.answers)) {
		w.answered(t, step, rows)
	}
}

// rewound checks that the session of a rewind begins like the session that it was forked
// from.
func (w *world) rewound(t *task, rows []row, read func(id string) []row) {
	w.t.Helper()
	id, text, _ := strings.Cut(t.ForkOf, ":")
	at, err := strconv.Atoi(text)
	from := read(id)
	if err != nil || at > len(from) || at > len(rows) {
		w.fail("run %s, a fork of %s: %d rows there, %d here, %v", t.ID, t.ForkOf, len(from), len(rows), err)
		return
	}
	for i := range at {
		if a, b := from[i], rows[i]; a.Kind != b.Kind || a.Text != b.Text {
			w.fail("run %s, a fork of %s, begins with %+v instead of %+v", t.ID, t.ForkOf, b, a)
		}
	}
}

// answered checks that one answer to a question was taken, and had its effect.
func (w *world) answered(t *task, step string, rows []row) {
	w.t.Helper()
	taken := 0
	for _, a := range t.answers[step] {
		if !a.acked {
			continue
		}
		taken++
		var said string
		switch t.Workflow {
		case "ask":
			said = fmt.Sprintf("? %v %s", a.verb == "approve", a.value)
		case "answer":
			text, err := strconv.Unquote(a.value)
			if err != nil {
				w.fail("answer %s: %v", a.value, err)
			}
			said = "The number is " + text
		default:
			continue // see heeded
		}
		if !slices.ContainsFunc(rows, func(r row) bool { return r.Kind == "user" && strings.HasSuffix(r.Text, said) }) {
			w.fail("run %s was answered %q at step %s, which it does not know", t.ID, said, step)
		}
	}
	if taken > 1 {
		w.fail("%d answers to the question of run %s at step %s were acknowledged: %+v", taken, t.ID, step, t.answers[step])
	}
}

// letters checks that each body under the id of another task was rejected, and that clients
// can see it.
func (w *world) letters(ctx context.Context) {
	w.t.Helper()
	refused := map[string]bool{}
	for after := uint64(0); ; {
		data, err := w.load.request(ctx, "rath.query.default.dlq", map[string]any{"limit": 100, "after": after})
		var page struct {
			Letters []struct {
				Letter struct {
					Code string `json:"code"`
					Run  string `json:"run"`
				} `json:"letter"`
			} `json:"letters"`
			Next uint64 `json:"next"`
		}
		if err == nil {
			err = json.Unmarshal(data, &page)
		}
		if err != nil {
			w.fail("dead letters: %v", err)
			return
		}
		for _, one := range page.Letters {
			refused[one.Letter.Run] = refused[one.Letter.Run] || one.Letter.Code == "key_reused"
		}
		if after = page.Next; after == 0 {
			break
		}
	}
	w.load.mu.Lock()
	defer w.load.mu.Unlock()
	for _, id := range w.load.order {
		t := w.load.tasks[id]
		if t.reused && !refused[id] {
			w.fail("another body under the id %s was acknowledged, and is no dead letter", id)
		}
	}
}

// missing lists the requests of which none has succeeded yet.
func (w *world) missing() (all []string) {
	w.load.mu.Lock()
	defer w.load.mu.Unlock()
	for _, what := range []string{
		"another body under the same id", "approve", "approve with a change", "cancel", "interrupt", "message", "message to a session", "quarantine",
		"rebudget", "reject", "release", "rerun", "respond", "same body again",
	} {
		if w.load.deeds[what] == 0 {
			all = append(all, what)
		}
	}
	ended := map[string]bool{}
	for _, id := range w.load.order {
		t := w.load.tasks[id]
		word, _, _ := strings.Cut(t.Prompt, " ")
		if t.outcome.State == "succeeded" {
			ended[t.Workflow+" "+word] = true
			ended["rewind"] = ended["rewind"] || t.ForkOf != ""
			ended["not before"] = ended["not before"] || !t.NotBefore.IsZero()
		}
		ended["deadline"] = ended["deadline"] || t.outcome.State == "timed_out"
	}
	need := []string{"rewind", "not before", "deadline"}
	for _, k := range kinds {
		need = append(need, k.workflow+" "+k.prompt)
	}
	for _, what := range need {
		if !ended[what] {
			all = append(all, what)
		}
	}
	return all
}
