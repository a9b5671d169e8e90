package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/web/turn"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// retryWithin is how long the retry of a client's library joins the run of the first
	// try, at least.
	retryWithin = 10 * time.Minute
	// maxAlike is the number of runs of one history in that time that retries tell apart, and
	// maxFirst the number of its runs whose ids depend on no time.
	maxAlike, maxFirst = 12, 4
)

// begun is a run whose answer a request follows.
type begun struct {
	run      run.ID
	step     run.Path         // of the question that the request answered
	after    session.Version  // of the session at that question
	shown    []string         // what the client may have of the run's text, the longest first
	follower *client.Follower // nil if the run waits and the request changed nothing
	asks     []messages.Wait
	late     bool           // the run may have begun before
	task     *messages.Task // the submitted one, if others compete for its id
	release  func()
}

// free lets other requests use the id of the task.
func (b *begun) free() {
	if b.release != nil {
		b.release()
	}
}

// begin starts or continues the run of a request.
func (d *Door) begin(ctx context.Context, q *request) (*begun, error) {
	if len(q.approvals) > 0 {
		return d.approve(ctx, q)
	}
	var h *head
	var err error
	if q.retry {
		if b, err := d.again(ctx, q); b != nil || err != nil {
			return b, err
		}
	}
	switch {
	case q.previous != "":
		if h, err = headOf(ctx, q.caller, q.previous, 0); errors.Is(err, run.ErrState) {
			err = fmt.Errorf("response of run %s is in progress: %w; wait for its end", q.previous, run.ErrState)
		}
	case q.conversation == "":
		h, err = find(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	if h != nil && h.version == 0 {
		return d.reply(ctx, q, h)
	}
	return d.submit(ctx, q, h)
}

// reply gives the rows behind the head of a run that waits for them. Approvals are given
// elsewhere: a text of a conversation is none.
func (d *Door) reply(ctx context.Context, q *request, h *head) (*begun, error) {
	w := h.asks[0]
	var texts []string
	for _, r := range q.rows[h.next:] {
		if r.Role == roleUser {
			texts = append(texts, r.Text)
		}
	}
	text := strings.Join(texts, "\n\n")
	if w.Kind == run.WaitApproval || text == "" || len(h.asks) > 1 {
		return &begun{run: h.run, asks: h.asks}, nil
	}
	at := part{h.run, h.now, w.Step}
	control := messages.Control{Step: w.Step, ID: "openai-" + q.body}
	if w.Kind == run.WaitMessage {
		control.Step, control.Text = "", text
		return d.answer(ctx, q, at, messages.VerbMessage, control)
	}
	control.Value = json.RawMessage(text)
	if !typed(h.info.Schemas[w.Step]) || !json.Valid(control.Value) {
		var err error
		if control.Value, err = messages.Encode(text); err != nil {
			return nil, err
		}
	}
	return d.answer(ctx, q, at, messages.VerbRespond, control)
}

// again follows the run of the question at the end of the history, for a retry, if the
// question is not open any more: the first try has answered it. Otherwise it returns nil.
func (d *Door) again(ctx context.Context, q *request) (*begun, error) {
	at := q.answerAt()
	if at < 0 || q.previous != "" {
		return nil, nil
	}
	id, step, ok := questionIn(q.rows[at].Text)
	if !ok || q.caller.Sees(ctx, id) != nil {
		return nil, nil
	}
	info, err := q.caller.Client.Runs.Get(ctx, id)
	if errors.Is(err, run.ErrUnknownRun) || slices.ContainsFunc(info.Waits, func(w messages.Wait) bool { return w.Step == step }) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f, err := q.caller.Client.Follow(ctx, id)
	b := &begun{run: id, step: step, follower: f, late: true}
	text := ""
	for ; at >= 0; at-- {
		if q.rows[at].Role == roleAssistant {
			shown, _ := cutQuestion(q.rows[at].Text)
			text = turn.Join(shown, text)
			b.shown = append([]string{text}, b.shown...)
		}
	}
	return b, err
}

// typed reports whether a schema is that of a value other than a text.
func typed(schema json.RawMessage) bool {
	var s struct{ Type any }
	return json.Unmarshal(schema, &s) == nil && s.Type != nil && s.Type != "string"
}

// approve gives the client's decision about a question of a run.
func (d *Door) approve(ctx context.Context, q *request) (*begun, error) {
	if len(q.approvals) > 1 {
		return nil, wrong("input", "it has two approvals", "answer one question in a request")
	}
	a := q.approvals[0]
	if err := q.caller.Sees(ctx, a.run); err != nil {
		return nil, err
	}
	verb := messages.VerbReject
	if a.allow {
		verb = messages.VerbApprove
	}
	return d.answer(ctx, q, a.part, verb, messages.Control{Step: a.step, Reason: a.reason, ID: "openai-" + q.body})
}

// answer sends a control request about a question, and follows the run from there.
func (d *Door) answer(ctx context.Context, q *request, at part, verb string, control messages.Control) (*begun, error) {
	if err := q.caller.May(verb); err != nil {
		return nil, err
	}
	f, err := q.caller.Client.Follow(ctx, at.run)
	if err != nil {
		return nil, err
	}
	c := q.caller.Client
	send := map[string]func(context.Context, run.ID, messages.Control) error{
		messages.VerbApprove: c.Questions.Approve, messages.VerbReject: c.Questions.Reject, messages.VerbRespond: c.Questions.Answer, messages.VerbMessage: c.Runs.Message,
	}[verb]
	if err := send(ctx, at.run, control); err != nil && !(q.retry && errors.Is(err, run.ErrState)) {
		f.Close()
		return nil, err
	}
	return &begun{run: at.run, step: at.step, after: at.after, follower: f, late: q.retry}, nil
}

// submit submits the task of a request behind a head, on a new session without one. A retry
// joins the run of the first try.
func (d *Door) submit(ctx context.Context, q *request, h *head) (*begun, error) {
	if err := q.caller.May(access.VerbSubmit); err != nil {
		return nil, err
	}
	fresh, from := q.answerAt()+1, 0
	t := messages.Task{Tags: q.tags}
	if q.previous == "" && q.conversation == "" {
		t.Tags = t.Tags.With(tagHead, q.heads()[len(q.rows)])
	}
	switch {
	case q.conversation != "":
		t.Session, fresh = q.conversation, 0
	case h != nil:
		t.ForkOf, from = fork(h.session, h.version), h.next
	}
	var err error
	if t.Input, err = q.input(from, max(fresh, from), h == nil); err != nil {
		return nil, err
	}
	if from < fresh {
		h = nil // it does not continue there
	}
	slot := time.Now().Unix() / int64(retryWithin/time.Second)
	if q.retry {
		b, err := d.join(ctx, q, slices.Concat(q.next(t, h, slot-1), q.next(t, h, slot), q.tries(t, slot-1), q.tries(t, slot)))
		if b != nil || err != nil {
			return b, err
		}
	}
	if h != nil && h.now == h.version {
		next := q.next(t, h, slot)
		b, err := d.start(ctx, q, next)
		if b != nil {
			b.task = &next[0]
		}
		if b != nil || err != nil {
			return b, err
		}
	}
	b, err := d.start(ctx, q, q.tries(t, slot))
	if b == nil && err == nil { // many runs of the same history: no retry finds the next one
		t.ID = client.NewID()
		b, err = d.start(ctx, q, []messages.Task{t})
	}
	return b, err
}

// tagTry is the tag of a run that has the digest of the request: retries have the same one.
const tagTry = "openai-try"

// next returns the task that continues the session of a head itself, none without a head. Its
// id is that of the only task that may: of two at the same time, the store accepts one.
func (q *request) next(t messages.Task, h *head, slot int64) []messages.Task {
	if h == nil {
		return nil
	}
	t.ID, t.Session, t.ForkOf = nextID(h.run), string(h.session), ""
	return q.marked(t, slot)
}

func (q *request) marked(t messages.Task, slot int64) []messages.Task {
	t.Tags = t.Tags.With(tagTry, digest(q.caller.Token, q.body, strconv.FormatInt(slot, 10)))
	return []messages.Task{t}
}

// tries returns the tasks under the ids that the runs of a history have, one after the other.
func (q *request) tries(t messages.Task, slot int64) (all []messages.Task) {
	head := q.heads()[len(q.rows)]
	if place := string(q.previous) + q.conversation; place != "" {
		head = digest(head, place)
	}
	for k := range maxAlike {
		if t.ID = firstID(head, k); k >= maxFirst {
			t.ID = run.ID("oai-" + digest(head, strconv.FormatInt(slot, 10), strconv.Itoa(k)))
		}
		all = append(all, q.marked(t, slot)...)
	}
	return all
}

// firstID returns the id of a run whose session begins or forks with a history, and nextID
// that of the run that continues the session of another one.
func firstID(head string, k int) run.ID {
	return run.ID("oai-" + digest("first", head, strconv.Itoa(k)))
}
func nextID(before run.ID) run.ID { return run.ID("oai-" + digest("next", string(before))) }

// join follows the run of the last of some tasks that is known, nil for none.
func (d *Door) join(ctx context.Context, q *request, tasks []messages.Task) (*begun, error) {
	known, err := q.caller.Client.Known(ctx, q.workflow.Name, tasks)
	if err != nil {
		return nil, err
	}
	for i := range slices.Backward(known) {
		if errors.Is(known[i], client.ErrSameTask) {
			f, err := q.caller.Client.Follow(ctx, tasks[i].ID)
			return &begun{run: tasks[i].ID, follower: f, late: true}, err
		}
	}
	return nil, nil
}

// start submits the first of some tasks whose id is free, nil if none is.
func (d *Door) start(ctx context.Context, q *request, tasks []messages.Task) (*begun, error) {
	known, err := q.caller.Client.Known(ctx, q.workflow.Name, tasks[:1])
	if err == nil && known[0] != nil && len(tasks) > 1 {
		known, err = q.caller.Client.Known(ctx, q.workflow.Name, tasks)
	}
	if err != nil {
		return nil, err
	}
	for i := range tasks {
		id := tasks[i].ID
		if i < len(known) && known[i] != nil || !d.reserve(id) {
			continue
		}
		f, err := q.caller.Client.Start(ctx, q.workflow.Name, tasks[i])
		if err == nil {
			return &begun{run: id, follower: f, release: func() { d.free(id) }}, nil
		}
		if d.free(id); !errors.Is(err, run.ErrKeyReused) {
			return nil, err
		}
	}
	return nil, nil
}

// reserve keeps other requests at this server from the id of a task on its way.
func (d *Door) reserve(id run.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reserved[id] {
		return false
	}
	d.reserved[id] = true
	return true
}

func (d *Door) free(id run.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.reserved, id)
}
