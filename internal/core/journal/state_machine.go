package journal

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Bounds of one session.
const (
	// maxQueue is the maximum number of runs that wait for one session.
	maxQueue = 64
)

// StateMachine is the pure half of a session's single writer. It folds the commits of
// the log, decides what a request appends, and stages the events. Its driver takes the
// staged commit, appends it, and reports the position:
//
//	answer, err := w.Claim(c, now)   // or Commit, Signal; as many as wait
//	if commit, ok := w.Take(); ok {
//		at, err := log.Append(ctx, w.At(), commit)
//		if err != nil { /* this writer is finished: drop it */ }
//		w.Committed(at)
//	}
//	// only now tell the callers
//
// No request may be made between Take and Committed. A StateMachine is not safe for
// concurrent use.
type StateMachine struct {
	key         session.Key
	root        session.ID
	incarnation string
	durability  string // for WriterOpened; "" is the default
	resolve     func(session.Link) (session.Session, error)
	state       RunState
	value       session.Session
	at          commitlog.Position
	opened      bool // this incarnation has its epoch
	taken       bool
	staged      []session.Event
	fresh       []*session.Session // made by staged events, to be linked to their commit

	sinceSnapshot int // commits
}

// NewStateMachine returns the state machine of a session whose log is empty or not folded
// yet.
func NewStateMachine(k session.Key, incarnation string, resolve func(session.Link) (session.Session, error)) *StateMachine {
	return &StateMachine{key: k, incarnation: incarnation, resolve: resolve, value: session.Open(k, k.ID), root: k.ID}
}

// Promise sets the durability that WriterOpened records for this incarnation's commits;
// "" is DefaultDurability. It must be called before the first event.
func (w *StateMachine) Promise(durability string) {
	if durability == DefaultDurability {
		durability = ""
	}
	w.durability = durability
}

// Fold applies the next commit of the log. If the commit is not the next one, or if
// this release cannot fold it, Fold fails and changes nothing.
func (w *StateMachine) Fold(e commitlog.Entry) error {
	c := e.Commit
	switch {
	case c.Key != w.key || c.Seq != w.at.Seq+1 || c.Prev != w.at.Hash:
		return fmt.Errorf("journal: commit %d of %s does not follow commit %d of %s: %w", c.Seq, c.Key, w.at.Seq, w.key, session.ErrForeign)
	case len(w.staged) > 0:
		return fmt.Errorf("journal: commit %d of %s comes while events are staged: %w", c.Seq, w.key, run.ErrState)
	}
	value := w.value
	if w.at.Seq == 0 {
		value = session.Open(w.key, c.Root)
	}
	changes, err := w.plan(value, c.Events)
	if err != nil {
		return fmt.Errorf("journal: fold commit %d of %s: %w", c.Seq, w.key, err)
	}
	w.root = c.Root
	w.apply(changes)
	w.settle(e.At)
	return nil
}

// settle links the values that a commit made to it.
func (w *StateMachine) settle(at commitlog.Position) {
	was := w.value
	w.at, w.value = at, at.Made(was)
	for _, s := range w.fresh {
		if *s == was { // nearly always, and one value is enough
			*s = w.value
		} else {
			*s = at.Made(*s)
		}
	}
	w.fresh = w.fresh[:0]
	w.sinceSnapshot++
}

// change is an event with its decoded fact and the resulting value.
type change struct {
	event session.Event
	fact  any
	value session.Session // after it
}

// plan computes the changes of events, and fails if one of them cannot be folded. No two
// of the events may concern the submission of the same run.
func (w *StateMachine) plan(value session.Session, events []session.Event) ([]change, error) {
	changes := make([]change, len(events))
	for i, e := range events {
		var err error
		if value, err = session.Apply(value, e, w.resolve); err != nil {
			return nil, err
		}
		fact, err := w.state.read(e)
		if err != nil {
			return nil, err
		}
		changes[i] = change{e, fact, value}
	}
	return changes, nil
}

func (w *StateMachine) apply(changes []change) {
	for _, c := range changes {
		w.value = c.value
		if made := w.state.fold(w.key, c.fact, c.event.Time, c.value); made != nil {
			w.fresh = append(w.fresh, made)
		}
	}
}

// Session returns the session as of all commits and staged events.
func (w *StateMachine) Session() session.Session { return w.value }

// RunState returns the fold of the runs. The caller must not use it after the next
// call.
func (w *StateMachine) RunState() *RunState { return &w.state }

// At returns the position of the last commit.
func (w *StateMachine) At() commitlog.Position { return w.at }

// Epoch returns the epoch of this incarnation; zero before its first commit.
func (w *StateMachine) Epoch() uint64 {
	if !w.opened {
		return 0
	}
	return w.state.Epoch
}

// stage records events for the next commit, all of them or none.
func (w *StateMachine) stage(now time.Time, events ...session.Event) error {
	if w.taken {
		return fmt.Errorf("journal: a commit to %s is under way: %w", w.key, run.ErrState)
	}
	if w.state.closed {
		return errClosing(w.key)
	}
	if a := w.value.Archived(); a != nil && events[0].Kind != session.KindRestored {
		return a
	}
	if !w.opened {
		events = append([]session.Event{event(KindWriter, WriterOpened{Durability: w.durability, Edition: Edition, Epoch: w.state.Epoch + 1, Incarnation: w.incarnation})}, events...)
	}
	for i := range events {
		if v, ok := events[i].Made().(Ended); ok && events[i].Data == "" {
			ended := event(KindEnded, v)
			ended.Batch = events[i].Batch
			events[i] = ended
		}
		events[i].Time = time.UnixMilli(now.UnixMilli()).UTC()
	}
	changes, err := w.plan(w.value, events)
	if err != nil {
		return err
	}
	w.opened = true
	w.apply(changes)
	w.staged = append(w.staged, events...)
	return nil
}

// Take returns the commit of all staged events; ok is false if there are none.
func (w *StateMachine) Take() (c commitlog.Commit, ok bool) {
	if len(w.staged) == 0 {
		return c, false
	}
	w.taken = true
	return commitlog.Commit{
		Key: w.key, Root: w.root, Seq: w.at.Seq + 1, Epoch: w.state.Epoch, Prev: w.at.Hash, Events: w.staged,
	}, true
}

// StagedBytes estimates the size of the staged commit.
func (w *StateMachine) StagedBytes() int {
	n := 0
	for i := range w.staged {
		n += len(w.staged[i].Data) + 160
	}
	return n
}

// Committed reports that the commit returned by Take is durable at a position.
func (w *StateMachine) Committed(at commitlog.Position) {
	w.settle(at)
	w.staged, w.taken = nil, false
}

// Finish links the answer to the commit that made it, and copies decisions that were
// made after the claim from the commit's events. Drivers call it when the writer staged
// events for the claim. was and made are the session before and after the commit: the
// answer nearly always holds was, and one value is enough.
func (g *ClaimResult) Finish(at commitlog.Position, was, made session.Session, events []session.Event) {
	for i, e := range events {
		if e.Kind != KindClaimed || i+1 == len(events) { // nearly always the last; no need to keep all of them
			continue
		}
		if c, err := Decode[Claimed](e); err == nil && c.Run == g.Record.ID && c.Attempt == g.Attempt {
			g.After = events[i+1:]
		}
	}
	answer := g.Session
	if g.Session = made; answer != was {
		g.Session = at.Made(answer)
	}
	if g.Base == answer {
		g.Base = g.Session
	} else if _, ok := g.Base.Link(); !ok {
		g.Base = at.Made(g.Base)
	}
	g.Record.Base = g.Base
}

// Finish links the answer to the commit that made it. Drivers call it when the writer
// staged events for the batch.
func (a *Ack) Finish(at commitlog.Position) {
	a.Session, a.At = at.Made(a.Session), at
}

// end stages the end of a run without an execution. An earlier request to cancel the
// run wins.
func (w *StateMachine) end(r *Record, s run.State, code run.Code, text string, now time.Time) error {
	if r.Cancel != nil {
		s, code, text = run.Cancelled, run.CodeCancelled, r.Cancel.Reason
	}
	e := Ended{Attempt: r.Attempt, Branches: r.branches, Children: r.made(), Code: code, Error: text, Run: r.ID, State: s, Workflow: r.Task.Workflow}
	e.Usage, e.Lost, e.Steps = r.spent()
	switch {
	case r.Home != w.key:
		e.Settle = r.Cancel.Settle
	case len(e.Children) > 0:
		e.Settle = w.key.ID
	}
	return w.stage(now, w.finale(r, []session.Event{w.promote(e, now)}, now)...)
}

// finale completes the events that end a run. Messages that no step consumed become
// chunks, the end records the resulting session, a branch that its parent disposed of is
// closed, and a run with compensations submits its cleanup run.
func (w *StateMachine) finale(r *Record, events []session.Event, now time.Time) []session.Event {
	at := slices.IndexFunc(events, func(e session.Event) bool { return e.Kind == KindEnded })
	if at < 0 || r.Home != w.key {
		return events
	}
	if w.value.Closing().State == "" {
		for _, v := range r.inbox {
			if v.Kind == Message {
				events, at = slices.Insert(events, at, session.ChunkEvent(session.UserText(v.Text))), at+1
			}
		}
	}
	if v, err := Decode[Ended](events[at]); err == nil {
		after := w.value
		for _, e := range events {
			if next, err := session.Apply(after, e, w.resolve); err == nil { // else stage rejects it
				after = next
			}
		}
		v.Version, v.Head = after.Ref().Version, after.Placement().Head
		if b := r.Task.Branch; b != nil {
			v.Parent = b.Parent()
		}
		if by := r.Task.StartedBy; by != nil {
			v.Starter = &Ancestor{Path: by.Step, Run: by.Run, Session: by.Session}
		}
		v.Awaits, v.AwaitedBy = r.awaits, r.awaitedBy
		cleanup := cleanupOf(w, r, v.State, now)
		if cleanup != nil {
			v.Next = &Offer{Revision: cleanup.Task.Revision, Run: cleanup.Task.Run, Workflow: cleanup.Task.Workflow}
			events = slices.Insert(events, at+1, event(KindSubmitted, *cleanup))
		} else {
			v.Limit = frees(r)
		}
		ended := unencoded(v)
		ended.Batch = events[at].Batch
		events[at] = ended
	}
	if r.Task.Branch != nil && r.Cancel != nil && r.Cancel.Close != "" {
		events = append(events, w.closing(run.BranchOutcome{Reason: r.Cancel.Reason, State: r.Cancel.Close}))
	}
	return events
}

// promote completes the event that ends a run with its consequences.
func (w *StateMachine) promote(e Ended, now time.Time) session.Event {
	e.Next = w.next(e.Run, now)
	r := w.state.Run(e.Run)
	if r == nil {
		return unencoded(e)
	}
	if e.Code != run.CodeReview { // CodeReview: an operator decided
		e.Error += r.unknownEffects()
	}
	used, bound, steps := r.owed()
	e.Usage, e.Lost, e.Steps = e.Usage.Add(used), e.Lost.Add(bound), e.Steps+steps
	return unencoded(e)
}

// unencoded is an event whose data are completed, and encoded by stage.
func unencoded(e Ended) session.Event {
	return session.Event{Kind: KindEnded, Schema: Schema}.Of(e)
}

// unknownEffects names the announced calls whose effect is unknown, so that no run ends
// as if there were none.
func (r *Record) unknownEffects() string {
	paths := slices.SortedFunc(maps.Keys(r.intents), run.ComparePaths)
	var b strings.Builder
	for _, p := range paths {
		if r.resolved[p].Decision == run.Happened {
			continue
		}
		fmt.Fprintf(&b, "; nobody knows whether %q at step %s took effect", r.intents[p].Name, p)
	}
	return b.String()
}

// next is the queued run that may claim the session once leaving releases it.
func (w *StateMachine) next(leaving run.ID, now time.Time) *Offer {
	if w.state.Active != leaving && w.state.Active != "" {
		return nil
	}
	for _, id := range w.state.Queue {
		// A run that is not due yet, or held, does not block the others.
		if r := w.state.Run(id); id != leaving && r.Cancel == nil && !mustWait(r) && !r.Task.NotBefore.After(now) {
			return &Offer{Revision: r.Task.Revision, Run: id, Workflow: r.Task.Workflow}
		}
	}
	return nil
}

// Signal decides about a fact from outside a run; see [Store].
func (w *StateMachine) Signal(s Signal, now time.Time) error {
	if w.state.wasDelivered(s) {
		return nil // it arrived before
	}
	switch {
	case s.Tick:
		return w.tick(now)
	case s.Close != nil:
		return w.close(*s.Close, now)
	case s.Quarantine != nil:
		return w.quarantine(*s.Quarantine, now)
	case s.Late != nil:
		return w.keepLate(*s.Late, now)
	case s.Archive != nil:
		return w.archive(*s.Archive, now)
	case s.Restore != nil:
		return w.restore(*s.Restore, now)
	case s.Limit != nil && s.Limit.Decided == nil:
		return decideLimit(w, s.Limit, now)
	case s.Event != nil:
		return decideEvent(w, s.Event, now)
	case s.CloseKey != nil:
		return closeKey(w, *s.CloseKey, now)
	case s.Received != nil && s.Run == "":
		return w.message(*s.Received, now)
	}
	r := w.state.Run(s.Run)
	if r == nil {
		return fmt.Errorf("journal: %s is not in the log of %s: %w", s.Run, w.key, run.ErrUnknownRun)
	}
	switch {
	case s.Settle != nil:
		return w.settlePart(r, *s.Settle, now)
	case s.Awaited != nil:
		return awaitEnd(w, r, *s.Awaited, now)
	case r.State.Terminal() && s.Received != nil && s.Received.Kind == Report && s.Received.Branch != nil:
		return w.reportedLate(r, *s.Received, now)
	case r.State.Terminal():
		return fmt.Errorf("journal: %s %s already: %w", s.Run, r.State.Past(), run.ErrState)
	}
	switch {
	case s.Limit != nil:
		return limitDecided(w, r, s.Limit, now)
	case s.Rebudget != nil:
		return w.rebudget(r, *s.Rebudget, now)
	case s.Received != nil:
		return w.receive(r, *s.Received, now)
	case s.Cancel != nil:
		if r.Cancel != nil {
			return cancelAgain(w, r, *s.Cancel, now)
		}
		return w.cancel(r, *s.Cancel, now)
	case s.Resolve != nil:
		return resolveReview(w, r, *s.Resolve, now)
	}
	return fmt.Errorf("journal: signal for %s: %w", s.Run, run.ErrNotSupported)
}

// resolveReview records an operator's decision about a run that needs it.
func resolveReview(w *StateMachine, r *Record, v Resolved, now time.Time) error {
	if r.State != run.NeedsReview {
		return fmt.Errorf("journal: %s is %s, not %s: %w", r.ID, r.State, run.NeedsReview, run.ErrState)
	}
	v.Run, v.Path, v.Workflow, v.Revision = r.ID, r.Review.Path, r.Task.Workflow, r.Task.Revision
	switch v.Decision {
	case run.Happened, run.Again:
		if v.Decision == run.Happened && v.Path == "" {
			return fmt.Errorf("journal: %s did not stop at a call, so none can have happened; let it try again or fail: %w", r.ID, run.ErrState)
		}
		if r.Cancel != nil && v.Decision == run.Again {
			return fmt.Errorf("journal: %s was cancelled and makes no call again; decide %s or %s: %w", r.ID, run.Happened, run.Fail, run.ErrState)
		}
	case run.Pin:
		if v.Revision = r.Review.Revision; v.Revision == "" {
			return fmt.Errorf("journal: no revision is known that %s could wait for; let it try again or fail: %w", r.ID, run.ErrState)
		}
	case run.Fail:
	default:
		return fmt.Errorf("journal: decision %q: want %s, %s, %s or %s: %w", v.Decision, run.Happened, run.Again, run.Pin, run.Fail, run.ErrMalformed)
	}
	if err := w.stage(now, event(KindResolved, v)); err != nil || v.Decision != run.Fail && r.Cancel == nil {
		return err
	}
	return w.end(r, run.Failed, run.CodeReview, v.Reason, now) // or cancelled
}

// cancelAgain decides about a further request to cancel a run. It ends one that waits for a
// person, and with Force an execution gives up code that does not return.
func cancelAgain(w *StateMachine, r *Record, c CancelRequested, now time.Time) error {
	switch {
	case r.State == run.NeedsReview:
		return w.end(r, run.Cancelled, run.CodeCancelled, r.Cancel.Reason, now)
	case !c.Force || r.State != run.Running || r.Home != w.key:
		return nil
	case r.Epoch != w.Epoch(): // its execution is lost
		return w.end(r, run.Cancelled, run.CodeCancelled, r.Cancel.Reason, now)
	case r.Cancel.Force:
		return nil
	}
	c.Run = r.ID
	return w.stage(now, event(KindCancel, c))
}

// cancel asks the execution of the run here to stop; without an execution the run ends
// immediately. A session that is not the run's home only releases the run, and a branch
// ends with that.
func (w *StateMachine) cancel(r *Record, c CancelRequested, now time.Time) error {
	c.Run = r.ID
	if used, _, steps := r.spent(); r.Home != w.key && w.value.Closing().State != "" && len(r.made()) == 0 &&
		(c.Settle == "" || steps == 0 && used == session.Usage{}) {
		return nil // it was released before and left nothing
	}
	live := r.Home == w.key && r.State == run.Running && r.Epoch == w.Epoch()
	if err := w.stage(now, event(KindCancel, c)); err != nil || live {
		return err
	}
	if o := w.value.Opening(); r.Home != w.key && o.Run == string(r.ID) && w.value.Closing().State == "" &&
		(o.Kind == session.OpenFork || o.Kind == session.OpenImplicit) {
		if err := w.stage(now, session.ClosedEvent(session.Closing{By: r.Home, Reason: c.Reason, State: session.ClosedCancelled})); err != nil {
			return err
		}
	}
	return w.end(r, run.Cancelled, run.CodeCancelled, c.Reason, now)
}
