package journal

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// RunWaiting records that a run stopped until its waits are satisfied: all of them, or with
// Any one of them. A waiting run holds its session and no other resource.
type RunWaiting struct {
	Any     bool   `json:"any,omitempty"`
	Attempt uint64 `json:"attempt"`
	For     []Wait `json:"for"`
	// Left are the logs of the events that the run awaited before, and awaits no longer. The
	// writer sets it.
	Left []session.ID `json:"left,omitempty"`
	// Revision is the revision of the waiting code. An older log has none.
	Revision string `json:"revision,omitempty"`
	Run      run.ID `json:"run"`
}

// Wait is one condition that a run waits for.
type Wait struct {
	Branches []session.ID `json:"branches,omitempty"` // of a fan-out
	Detail   string       `json:"detail,omitempty"`
	// After is, for an event, the place of the last one that the run has, and for a quota
	// the number of the setting that does not allow the call.
	After uint64 `json:"after,omitempty"`
	// Due, in Unix milliseconds, is the time at which a timer decides the wait. The
	// writer sets it for waits that only an operator or an outside program can end; see
	// DefaultExpiry.
	Due int64 `json:"due,omitempty"`
	// Edits is set if the values of an approval edit the subject of the question. An
	// approval may then omit them.
	Edits bool       `json:"edits,omitempty"`
	Key   string     `json:"key,omitempty"` // of an event
	Kind  string     `json:"kind"`
	Log   session.ID `json:"log,omitempty"`  // of an event or a quota
	Name  string     `json:"name,omitempty"` // of the tool, the step or the event
	// Need is the number of branches that must succeed; zero waits for the ends of all.
	Need int      `json:"need,omitempty"`
	Path run.Path `json:"path"` // of the step; answers name it
	// Schema is the JSON Schema of the answer's value, or of the values of an approval,
	// of at most form.MaxSchema bytes; "" accepts any value.
	Schema string `json:"schema,omitempty"`
	// Since is, for an event, the time of the one at After, in Unix milliseconds.
	Since int64  `json:"since,omitempty"`
	Title string `json:"title,omitempty"`
}

// The kinds of signals that a run receives.
const (
	Approve = "approve"
	Refuse  = "reject"
	Respond = "respond"
	Message = "message"
	Timer   = "timer"
	Report  = "branch" // a branch ended
	Outcome = "ended"  // a started run ended
	Event   = "event"  // an event was published
	Opened  = "opened" // the quota was set, which may allow a model call
	// cacheWarm is sent by the first branch of a warm-first fan-out, once it has its
	// first answer of a model. It is never in an inbox.
	cacheWarm = "warm"
)

// SignalReceived records a signal from outside the run. It stays in the run's inbox
// until a step consumes it. Without a run it is the id of a message to a session that
// no run held; the chunk after it is the message.
type SignalReceived struct {
	// Asked is the name of the question that it answers, or that timed out. An older
	// log has none.
	Asked string `json:"asked,omitempty"`
	// AskedRevision is the revision of the code that asked it, see RunWaiting.
	AskedRevision string `json:"asked_revision,omitempty"`

	Branch *BranchEnd `json:"branch,omitempty"`
	By     string     `json:"by,omitempty"`    // see Named
	Ended  *RunEnd    `json:"ended,omitempty"` // of a run that it started
	Event  *Published `json:"event,omitempty"` // that it awaits
	// ID is the idempotency key of the signal, as long as the session keeps it, see
	// maxSignals; "" is for signals that may be applied twice.
	ID        string   `json:"id,omitempty"`
	Interrupt bool     `json:"interrupt,omitempty"` // a message that cuts off the current model call
	Kind      string   `json:"kind"`
	N         uint64   `json:"n"`              // its place in the run's inbox, from one
	Path      run.Path `json:"path,omitempty"` // of the step that it answers; for a message, the step that waited for it
	Reason    string   `json:"reason,omitempty"`
	Revision  string   `json:"revision,omitempty"`
	Run       run.ID   `json:"run"`
	Says      string   `json:"says,omitempty"`
	Text      string   `json:"text,omitempty"`  // of a message
	Value     string   `json:"value,omitempty"` // JSON
	// Wake is set when no wait is left and the run resumes: it counts the run's
	// wakeups.
	Wake     uint64 `json:"wake,omitempty"`
	Workflow string `json:"workflow,omitempty"`
}

// BranchEnd is the outcome of a branch of a fan-out.
type BranchEnd struct {
	Code  run.Code      `json:"code,omitempty"`
	Error string        `json:"error,omitempty"`
	Link  session.Link  `json:"link"` // its last commit
	State run.State     `json:"state"`
	Steps int64         `json:"steps,omitempty"` // its own and its branches'
	Usage session.Usage `json:"usage,omitzero"`
}

// The bounds of the messages in one run's inbox, and of one message's text or value.
// Answers and the reports of branches are always accepted: the run waits for them, and
// its questions and branches bound them.
const (
	maxInbox   = 1024
	maxMessage = 64 << 10
)

// MaxDetail bounds the detail of a question, such as a diff to approve.
const MaxDetail = 16 << 10

// DefaultExpiry is how long a run waits for an outside answer (a review, a question or
// a message) unless the author set a limit. The commit that starts the wait records the
// deadline, so that a release that changes DefaultExpiry does not change recorded
// waits. A wait in an older log may have no deadline and stays open.
const DefaultExpiry = 14 * 24 * time.Hour

// question reports whether the step of a wait is of the kind StepAwait.
func (w Wait) question() bool {
	return w.Kind != run.WaitBranches && w.Kind != run.WaitRun && w.Kind != run.WaitQuota
}

// outside reports whether only an answer from outside can end a wait, which may never
// arrive. Timers have a time, and branches end by themselves.
func (w Wait) outside() bool {
	return w.Kind == run.WaitApproval || w.Kind == run.WaitResponse || w.Kind == run.WaitMessage || w.Kind == run.WaitEvent
}

// expiring sets the expiry of the waits that need one.
func (v RunWaiting) expiring(now time.Time) RunWaiting {
	v.For = slices.Clone(v.For)
	for i := range v.For {
		if w := &v.For[i]; w.Due == 0 && w.outside() {
			w.Due = now.Add(DefaultExpiry).UnixMilli()
		}
	}
	return v
}

// answers reports whether a received fact decides a question at a path.
func (v SignalReceived) answers(p run.Path) bool {
	switch v.Kind {
	case Approve, Refuse, Respond, Timer, Event, Opened:
		return v.Path == p
	}
	return false
}

// Came reports whether an inbox satisfies w.
func (w Wait) Came(inbox []SignalReceived) bool {
	ended, succeeded := 0, 0
	for _, v := range inbox {
		switch {
		case v.answers(w.Path):
			return true
		case w.Kind == run.WaitMessage && v.Kind == Message, w.Kind == run.WaitRun && v.ends(run.ID(w.Name)):
			return true
		case w.Kind == run.WaitBranches && v.Kind == Report && v.Path == w.Path:
			ended++
			if v.Branch.State == run.Succeeded {
				succeeded++
			}
		}
	}
	return w.Kind == run.WaitBranches && (ended == len(w.Branches) || w.Need > 0 && succeeded >= w.Need)
}

// Came reports whether an inbox ends the wait of a run.
func (w *RunWaiting) Came(inbox []SignalReceived) bool {
	if w.Any {
		return slices.ContainsFunc(w.For, func(one Wait) bool { return one.Came(inbox) })
	}
	return !slices.ContainsFunc(w.For, func(one Wait) bool { return !one.Came(inbox) })
}

// First returns the index of the wait that the earliest signal of an inbox satisfies; -1 is
// none.
func First(ws []Wait, inbox []SignalReceived) int {
	for n := range inbox {
		if i := slices.IndexFunc(ws, func(w Wait) bool { return w.Came(inbox[:n+1]) }); i >= 0 {
			return i
		}
	}
	return -1
}

// Inbox returns the received signals that no step has consumed yet, oldest first.
func (r *Record) Inbox() []SignalReceived { return slices.Clone(r.inbox) }

// wait folds the start of a run's wait.
func (r *Record) wait(v RunWaiting) {
	if r.State != run.Running || v.Attempt != r.Attempt {
		return
	}
	r.State, r.Suspended, r.Deaths, r.Due, r.awaits = run.Waiting, &v, Deaths{}, nil, eventLogs(v.For)
	for _, w := range v.For {
		if v.Any && w.Due != 0 {
			put(&r.Due, w.Path, w.Due)
		}
	}
}

// received folds a fact into the run's inbox.
func (r *Record) received(v SignalReceived) {
	if v.N <= r.inboxed {
		return
	}
	r.inboxed = v.N
	if v.Kind == Report && v.Branch != nil && r.reserved.Awaits(v.Path, v.Branch.Link.ID) {
		r.reserved.Settle(v.Path, v.Branch)
		return // it only reports the branch's usage
	}
	if preceded(r, v) {
		return
	}
	r.inbox = append(r.inbox, v)
	if v.ID != "" {
		r.delivered = append(r.delivered[max(len(r.delivered)+1-maxInbox, 0):], v.ID)
	}
	if v.Wake > r.wake && r.State == run.Waiting {
		r.State, r.Suspended, r.wake = run.Queued, nil, v.Wake
	}
}

// took removes the signals that a step consumed from the inbox.
func (r *Record) took(d StepCompleted) {
	if len(r.inbox) == 0 {
		return
	}
	r.inbox = slices.DeleteFunc(r.inbox, func(v SignalReceived) bool {
		return v.Kind == Message && v.N <= d.Inbox || v.Path == d.Path && v.Kind != Message || v.lost(d) || v.Path.Parent() == QuotaPath(d.Path) || d.Kind == StepResult && d.Code == "" && v.ends(run.ID(d.Name))
	})
}

// arrived reports whether the events of a batch only let a run wait for signals that
// are already in its inbox. The batch is then not recorded, and the run continues.
func (r *Record) arrived(events []session.Event) bool {
	last := len(events) - 1
	if last < 0 || events[last].Kind != KindRunWaiting || slices.ContainsFunc(events[:last], func(e session.Event) bool { return e.Kind != KindCacheWarmed }) {
		return false
	}
	v, err := Decode[RunWaiting](events[last])
	return err == nil && v.Came(r.inbox)
}

// receive decides about a fact for a run.
func (w *StateMachine) receive(r *Record, v SignalReceived, now time.Time) error {
	switch {
	case r.Home != w.key:
		return fmt.Errorf("journal: %s is told in the log of %s, not of %s: %w", r.ID, r.Home, w.key, run.ErrState)
	case v.ID != "" && slices.Contains(r.delivered, v.ID):
		return nil // it arrived before
	case v.Kind == Message && len(r.inbox) >= maxInbox:
		return fmt.Errorf("%w: run %s has %d messages that no step has taken", run.ErrBusy, r.ID, len(r.inbox))
	case len(v.Text)+len(v.Value)+len(v.Reason) > maxMessage:
		return fmt.Errorf("journal: a message to %s has more than %d bytes: %w", r.ID, maxMessage, session.ErrTooLarge)
	}
	switch v.Kind {
	case Approve, Refuse, Respond:
		q, err := r.open(v)
		if err != nil {
			return err
		}
		if v.Value, err = q.take(r.ID, v); err != nil {
			return err
		}
	case Report:
		if v.Branch == nil {
			return fmt.Errorf("journal: a report to %s names no branch: %w", r.ID, run.ErrMalformed)
		}
		if r.steps[v.Path] != nil || over(r, v.Path) {
			return w.comesLate(r, v, now)
		}
		for _, o := range r.inbox {
			if o.Kind == Report && o.Branch.Link.ID == v.Branch.Link.ID {
				return nil // reported before
			}
		}
		v = w.place(r, v)
		return w.stage(now, append([]session.Event{event(KindSignalReceived, v)}, r.releaseBranches(v)...)...)
	case Outcome:
		if v.Ended == nil {
			return fmt.Errorf("journal: an outcome for %s names no run: %w", r.ID, run.ErrMalformed)
		}
		if v.Path == "" {
			return precedes(w, r, v, now)
		}
		if knowsEnd(r, v.Ended.Run) || over(r, v.Path) {
			return nil // it came before, or no step can take it any more
		}
	case Event:
		if again, err := eventDelivered(r, v); again || err != nil {
			return err
		}
	case cacheWarm:
		if events := r.releaseBranches(v); len(events) > 0 {
			return w.stage(now, events...)
		}
		return nil
	case Message, Timer:
	default:
		return fmt.Errorf("journal: %q for %s: %w", v.Kind, r.ID, run.ErrNotSupported)
	}
	return w.stage(now, event(KindSignalReceived, w.place(r, v)))
}

// comesLate handles the report of a branch without which the join was decided. It
// records the branch's usage and returns ErrState, because the report no longer decides
// anything.
func (w *StateMachine) comesLate(r *Record, v SignalReceived, now time.Time) error {
	if r.reserved.Awaits(v.Path, v.Branch.Link.ID) {
		if err := w.stage(now, event(KindSignalReceived, w.place(r, v))); err != nil {
			return err
		}
	}
	return fmt.Errorf("journal: %s went on without branch %s: %w", r.ID, v.Branch.Link.ID, run.ErrState)
}

// place numbers a signal for a run's inbox, and wakes the run if no wait is left.
func (w *StateMachine) place(r *Record, v SignalReceived) SignalReceived {
	v.Run, v.N = r.ID, r.inboxed+1
	v.Wake, v.Workflow, v.Revision = 0, "", ""
	v.Asked, v.AskedRevision = r.asks(v)
	if v.Kind == Message {
		v.Path = r.listens()
	}
	// append may write behind the inbox: no other reader sees that part.
	if r.State == run.Waiting && r.Suspended.Came(append(r.inbox, v)) {
		v.Wake, v.Workflow, v.Revision = r.wake+1, r.Task.Workflow, r.Task.Revision
	}
	return v
}

// listens returns the path of the step that waits for a user's message, "" if none
// does.
func (r *Record) listens() run.Path {
	if r.State == run.Waiting {
		for _, w := range r.Suspended.For {
			if w.Kind == run.WaitMessage && !w.Came(r.inbox) {
				return w.Path
			}
		}
	}
	return ""
}

// asks returns the name of the question that a signal decides, and the revision of the
// code that asked it; "" if there is none.
func (r *Record) asks(v SignalReceived) (name, revision string) {
	if r.State == run.Waiting {
		for _, w := range r.Suspended.For {
			if w.question() && v.answers(w.Path) {
				return w.Name, r.Suspended.Revision
			}
		}
	}
	return "", ""
}

// questions returns the steps of the open questions, and of the answered ones that the
// code has not reached again, by path. Only the name and the revision of such a step
// are recorded yet.
func (r *Record) questions() (all map[run.Path]*Step) {
	add := func(p run.Path, name, revision string) {
		put(&all, p, &Step{StepCompleted: StepCompleted{Kind: StepAwait, Name: name, Path: p, Revision: revision}})
		if of := p.Parent().Parent(); p.Parent() == SelectPath(of) {
			put(&all, of, &Step{StepCompleted: StepCompleted{Kind: StepSelect, Name: StepSelect, Path: of, Revision: revision}})
		}
	}
	if r.Suspended != nil {
		for _, w := range r.Suspended.For {
			if w.question() {
				add(w.Path, w.Name, r.Suspended.Revision)
			}
		}
	}
	for _, v := range r.inbox {
		if v.Asked != "" {
			add(v.Path, v.Asked, v.AskedRevision)
		}
	}
	return all
}

// open returns the question of an answer. It fails if the question does not exist, or
// is decided.
func (r *Record) open(v SignalReceived) (Wait, error) {
	if r.State == run.Waiting {
		for _, q := range r.Suspended.For {
			if q.Path != v.Path {
				continue
			}
			asks := q.Kind == run.WaitApproval && (v.Kind == Approve || v.Kind == Refuse) || q.Kind == run.WaitResponse && v.Kind == Respond
			switch {
			case !asks:
				return q, fmt.Errorf("journal: step %s of %s waits for %s; %q does not answer it: %w", v.Path, r.ID, q.Kind, v.Kind, run.ErrState)
			case q.Came(r.inbox):
				return q, fmt.Errorf("journal: step %s of %s was decided before: %w", v.Path, r.ID, run.ErrState)
			}
			return q, nil
		}
	}
	if s := r.steps[v.Path]; s != nil {
		return Wait{}, fmt.Errorf("journal: step %s of %s was decided before (%s): %w", v.Path, r.ID, s.Summary, run.ErrState)
	}
	return Wait{}, fmt.Errorf("journal: step %s of %s has no open question; the run is %s: %w", v.Path, r.ID, r.State, run.ErrState)
}

// message delivers a user's message to a session: as a chunk if no run is open, else
// into the inbox of the run that holds the session.
func (w *StateMachine) message(v SignalReceived, now time.Time) error {
	if w.state.Active != "" {
		return w.receive(w.state.runs[w.state.Active], v, now)
	}
	switch closed := w.value.Closing().State; {
	case w.at.Seq == 0 && len(w.staged) == 0:
		return fmt.Errorf("journal: session %s: %w", w.key, session.ErrNotFound)
	case closed != "" || w.state.branchEnded():
		return fmt.Errorf("journal: session %s has ended (%s): %w; fork it to continue", w.key, closed, session.ErrClosed)
	}
	chunk := session.ChunkEvent(session.UserText(v.Text))
	if v.ID == "" {
		return w.stage(now, chunk)
	}
	return w.stage(now, event(KindSignalReceived, SignalReceived{By: v.By, ID: v.ID, Kind: Message, Says: v.Says}), chunk)
}

// tick fires the expired timers: of questions without an answer, of reviews without a
// resolution, and the deadlines of runs that no node executes.
func (w *StateMachine) tick(now time.Time) error {
	switch {
	case w.state.limits != nil:
		return decideLimit(w, nil, now)
	case w.state.events != nil:
		return decideEvent(w, nil, now)
	}
	fired := false
	for _, r := range w.state.open() {
		if r.Home != w.key {
			continue
		}
		done, err := w.tickRun(r, now)
		if err != nil {
			return err
		}
		fired = fired || done
	}
	if !fired {
		return fmt.Errorf("journal: no event is due in session %s: %w", w.key, run.ErrState)
	}
	return nil
}

func (w *StateMachine) tickRun(r *Record, now time.Time) (fired bool, err error) {
	end := r.Deadline()
	over := !end.IsZero() && !now.Before(end)
	switch {
	case over && r.State == run.Running && r.Epoch == w.Epoch():
		return false, nil // the current execution ends it
	case over && r.State == run.Running:
		why := fmt.Sprintf("no node executed the run at its deadline: the node of attempt %d is gone, and no other node resumed it; check that a node offers workflow %q", r.Attempt, r.Task.Workflow)
		return true, w.end(r, run.TimedOut, run.CodeDeadline, why, now)
	case over:
		return true, w.end(r, run.TimedOut, run.CodeDeadline, "the run was "+string(r.State)+" at its deadline"+r.restsOn(), now)
	case r.State == run.NeedsReview && r.Review.Expires != 0 && now.UnixMilli() >= r.Review.Expires:
		return true, w.end(r, run.Failed, run.CodeExpired, "the review was not resolved: "+r.Review.Reason, now)
	case r.State != run.Waiting:
		return false, nil
	}
	first := slices.SortedStableFunc(slices.Values(r.Suspended.For), func(a, b Wait) int { return cmp.Compare(a.Due, b.Due) })
	for _, q := range first { // several may be due at once
		if q.Due == 0 || now.UnixMilli() < q.Due || q.Came(r.inbox) {
			continue
		}
		if err := w.stage(now, event(KindSignalReceived, w.place(r, SignalReceived{Kind: Timer, Path: q.Path}))); err != nil {
			return fired, err
		}
		if fired = true; r.State != run.Waiting {
			break
		}
	}
	return fired, nil
}

// restsOn describes a run's unsatisfied waits; "" if it does not wait.
func (r *Record) restsOn() string {
	if len(r.After) > 0 {
		return fmt.Sprintf(", after run %s, which had not ended", r.After[0].Run)
	}
	if r.State == run.Waiting {
		for _, w := range r.Suspended.For {
			switch {
			case w.Came(r.inbox):
			case w.Name == "":
				return fmt.Sprintf(", at step %s for %s", w.Path, w.Kind)
			default:
				return fmt.Sprintf(", at step %s for %s %q", w.Path, w.Kind, w.Name)
			}
		}
	}
	return ""
}

// Deadline returns the time at which the run must have ended: the task's deadline or,
// if that is earlier, the end of its time budget. Zero means no deadline.
func (r *Record) Deadline() time.Time {
	end := r.Task.Deadline
	if b := r.Task.Budget.Time; b > 0 && !r.Started.IsZero() {
		if t := r.Started.Add(b); end.IsZero() || t.Before(end) {
			end = t
		}
	}
	return end
}
