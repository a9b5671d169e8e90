//go:build e2e && linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// task is the client's view of a run.
type task struct {
	ID        string         `json:"run"`
	Workflow  string         `json:"workflow"`
	Prompt    string         `json:"prompt"`
	Session   string         `json:"session,omitempty"` // a name that was asked for
	Tools     []string       `json:"tools,omitempty"`
	Budget    map[string]int `json:"budget,omitempty"`
	NotBefore time.Time      `json:"not_before,omitzero"`
	Deadline  time.Time      `json:"deadline,omitzero"`
	ForkOf    string         `json:"fork_of,omitempty"` // session:version of a run before: a rewind
	After     string         `json:"after,omitempty"`   // a task that must have ended, see kinds
	Deed      string         `json:"deed,omitempty"`    // the action on the run while it is open
	Acked     bool           `json:"acked"`
	Sent      int            `json:"sent"` // how often it was submitted
	Result    string         `json:"result,omitempty"`
	outcome   taskResult
	twice     bool // another result was reported
	// done is set when the deed was acknowledged, inTime if that was before the
	// run could begin.
	done, inTime bool
	apart        bool                // its session was quarantined, and not released
	answers      map[string][]answer // to the questions of the run, by step
	reused       bool                // another body under the same id was acknowledged
	derived      bool                // the fleet made the task
}

// answer is the answer to a question, and whether it was acknowledged.
type answer struct {
	verb, value string
	acked       bool
}

type taskResult struct {
	Run     string `json:"run"`
	State   string `json:"state"`
	Session string `json:"session"`
	Version int    `json:"version"`
	Code    string `json:"code"`
	Error   string `json:"error"`
	Ended   int64  `json:"ended_ms"`
	Chain   *struct {
		Session string `json:"session"`
		Seq     uint64 `json:"seq"`
		Hash    string `json:"hash"`
	} `json:"chain"`
}

// The actions on open runs.
const (
	deedCancel   = "cancel"
	deedHint     = "hint"     // a message, twice under one id
	deedCutIn    = "cut in"   // a message that interrupts, likewise
	deedApart    = "apart"    // quarantine, and release after a while
	deedRebudget = "rebudget" // it begins with too little
)

// names are sessions that several tasks work on, one after the other; talks
// likewise, and words are said to those whether a run is open or not.
const (
	names = 4
	talks = 2
)

// kinds of work, of which "after" and "any" begin after another task, are drawn by their weights, and so are fates for plain runs with new
// sessions; "" means none.
var (
	fates = []string{"", "", "", "", deedCancel, deedHint, deedCutIn, deedApart, deedRebudget, "later", "rewind", "rewind"}
	kinds = []struct {
		weight           int
		workflow, prompt string
	}{
		{10, "work", "plain"},
		{3, "work", "pay"},
		{1, "work", "drag"},
		{2, "files", "write"},
		{2, "split", "plain"},
		{2, "fan", "all"},
		{2, "fan", "first"},
		{1, "fan", "quorum"},
		{1, "fan", "nest"},
		{2, "fanout", "both"},
		{2, "auto", "branch"},
		{3, "ask", "plain"},
		{2, "answer", "plain"},
		{1, "agent", "far"},
		{2, "agent", "gate"},
		{2, "starts", "plain"},
		{2, "books", "fail"},
		{2, "books", "wait"},
		{1, "holds", "once"},
		{2, "listens", "twice"},
		{2, "fails", "plain"},
		{4, "turns", "plain"},
		{2, "turns", "after"},
		{2, "turns", "any"},
		{1, "starts", "after"},
		{1, "starts", "any"},
	}
)

// deck holds numbers in the order in which they are drawn. Each is drawn as often as its
// weight before any repeats, so that even a short history has all of them.
type deck struct {
	weights []int
	left    []int
}

func (d *deck) draw(random *rand.Rand) int {
	if len(d.left) == 0 {
		for i, n := range d.weights {
			d.left = append(d.left, slices.Repeat([]int{i}, n)...)
		}
		random.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	n := d.left[0]
	d.left = d.left[1:]
	return n
}

func newDecks() (kindsDeck, fatesDeck, endsDeck deck) {
	for _, k := range kinds {
		kindsDeck.weights = append(kindsDeck.weights, k.weight)
	}
	fatesDeck.weights = slices.Repeat([]int{1}, len(fates))
	endsDeck.weights = []int{1, 1, 2}
	return kindsDeck, fatesDeck, endsDeck
}

// task invents the next task.
func (l *clients) task() *task {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	t := &task{ID: fmt.Sprintf("t%d", l.next)}
	k := kinds[l.kinds.draw(l.random)]
	t.Workflow, t.Prompt = k.workflow, k.prompt
	if k.prompt == "after" || k.prompt == "any" {
		t.After = l.before()
	}
	plain := t.Workflow == "work" && t.Prompt == "plain"
	t.Prompt += " " + t.ID
	switch place := l.random.IntN(8); {
	case t.Workflow == "agent":
		t.Tools = []string{"sound"}
	case t.Workflow == "work" && place < 2:
		t.Session = fmt.Sprintf("shared%d", l.random.IntN(names))
	case plain && place == 2:
		t.Session = fmt.Sprintf("talk%d", l.random.IntN(talks))
	}
	switch {
	case plain && t.Session == "":
		switch fate := fates[l.fates.draw(l.random)]; fate {
		case "later":
			t.NotBefore = time.Now().Add(time.Second)
		case "rewind":
			t.ForkOf = l.past()
		case deedRebudget:
			t.Deed, t.Budget, t.NotBefore = fate, map[string]int{"steps": 2}, time.Now().Add(1500*time.Millisecond)
		default:
			t.Deed = fate
		}
	case t.Workflow == "ask" && l.random.IntN(3) == 0:
		t.Deadline = time.Now().Add(2500 * time.Millisecond)
	case l.random.IntN(20) == 0 || t.Workflow == "books" && l.random.IntN(2) == 0:
		t.Deed = deedCancel
	}
	l.add(t)
	return t
}

// add is called with the lock held.
func (l *clients) add(t *task) {
	if was := l.tasks[t.ID]; was != nil { // its result arrived first
		t.Result, t.outcome = was.Result, was.outcome
	} else {
		l.arrived[t.ID] = make(chan struct{})
	}
	l.tasks[t.ID] = t
	l.order = append(l.order, t.ID)
}

// before returns a task that was acknowledged, and has not ended if there is such a one, ""
// for none: the fleet could reject a task after one that it does not have. It is called with
// the lock held.
func (l *clients) before() (of string) {
	var open []string
	for _, id := range l.order {
		t := l.tasks[id]
		if !t.Acked || t.derived {
			continue
		}
		if of = id; t.Result == "" {
			open = append(open, id)
		}
	}
	if len(open) > 0 {
		of = open[l.random.IntN(len(open))]
	}
	return of
}

// past returns a version of the session of a plain run that succeeded, or "" if there is
// none yet. It is called with the lock held.
func (l *clients) past() string {
	var all []*task
	for _, id := range l.order {
		if t := l.tasks[id]; t.plain() && t.outcome.State == "succeeded" && t.outcome.Version > 0 {
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return ""
	}
	o := all[l.random.IntN(len(all))].outcome
	return fmt.Sprintf("%s:%d", o.Session, 1+l.random.IntN(o.Version))
}

// plain reports whether the run had its own session and no action.
func (t *task) plain() bool {
	return t.Workflow == "work" && strings.HasPrefix(t.Prompt, "plain ") && t.Session == "" && t.Deed == "" && t.ForkOf == ""
}

// input returns the input of a workflow: the prompt, or the input of a router.
func (t *task) input() any {
	switch t.Workflow {
	case "auto":
		return map[string]any{"prompt": t.Prompt, "workflows": []string{"step"}, "rounds": 4}
	case "fanout":
		branch := func(name string) map[string]any {
			return map[string]any{"name": name, "workflow": "work", "input": "branch " + name + " of " + t.Prompt}
		}
		return map[string]any{"prompt": t.Prompt, "branches": []any{branch("a"), branch("b")}}
	case "agent":
		in := map[string]any{"prompt": t.Prompt}
		if strings.HasPrefix(t.Prompt, "gate") {
			in["approve"] = t.Tools
		}
		return in
	}
	return t.Prompt
}

// body returns the submitted form of the task.
func (t *task) body() map[string]any {
	body := map[string]any{"id": t.ID, "input": t.input()}
	for field, v := range map[string]string{"session": t.Session, "fork_of": t.ForkOf} {
		if v != "" {
			body[field] = v
		}
	}
	for field, v := range map[string]time.Time{"not_before": t.NotBefore, "deadline": t.Deadline} {
		if !v.IsZero() {
			body[field] = v.UTC().Format("2006-01-02T15:04:05.000Z")
		}
	}
	if len(t.Budget) > 0 {
		body["budget"] = t.Budget
	}
	if t.After != "" {
		field := "after"
		if strings.HasPrefix(t.Prompt, "any ") {
			field = "after_any"
		}
		body[field] = []string{t.After}
	}
	if len(t.Tools) > 0 {
		body["tools"] = t.Tools
	}
	switch t.Workflow {
	case "holds":
		body["on_failure"] = "hold"
	case "turns": // of two customers, one run each at a time
		last := t.ID[len(t.ID)-1]
		body["tags"], body["priority"] = map[string]string{"customer": fmt.Sprint("c", last%2)}, last%3
	}
	return body
}

// chunksOf returns the kinds of the chunks of an undisturbed run of a workflow.
func chunksOf(workflow, prompt string) string {
	long, short := "user assistant tool_result tool_result assistant tool_result assistant", "user assistant tool_result assistant"
	word, _, _ := strings.Cut(prompt, " ")
	repeat := func(n int) string { return strings.Join(slices.Repeat([]string{short}, n), " ") }
	switch {
	case workflow == "split":
		return long + " " + short
	case workflow == "fan" && (word == "first" || word == "quorum"):
		return repeat(2)
	case workflow == "fan" && word == "nest":
		return repeat(7)
	case workflow == "fan":
		return repeat(4)
	case workflow == "fanout":
		return "user " + repeat(2)
	case workflow == "auto", workflow == "agent", workflow == "fails", workflow == "turns":
		return short
	case workflow == "starts":
		return short + " user user"
	case workflow == "books", workflow == "holds", workflow == "listens":
		return "user"
	case workflow == "ask":
		return short + " user user " + short
	case workflow == "answer":
		return short + " user " + short
	case word == "plain", word == "write":
		return long
	case word == "pay", word == "drag":
		return short
	}
	panic(fmt.Sprintf("no load %q of workflow %s", prompt, workflow))
}
