package journal

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Commit decides about a batch; see [Store]. The Session of the answer is the value
// after the batch; the driver links it to the batch's position.
func (w *StateMachine) Commit(b Batch, now time.Time) (Ack, error) {
	r := w.state.Run(b.Run)
	if r == nil {
		return Ack{}, fmt.Errorf("journal: %s is not in the log of %s: %w", b.Run, w.key, run.ErrUnknownRun)
	}
	if s := r.steps[b.Path]; s != nil && has(b.Events, KindStepCompleted) && (s.Attempt == b.Attempt || b.Attempt >= r.Attempt) {
		return Ack{Session: s.Session, Recorded: s, At: w.at, Time: s.Time, State: r.State}, nil
	}
	// A released run has no holder until it is claimed again.
	stale := r.Attempt != b.Attempt || r.Epoch != w.Epoch() || r.State.Terminal() || r.State == run.Queued ||
		r.State == run.NeedsReview && r.Review.cutOff() // of code that was given up
	if stale && (protection.AttemptFence || r.State.Terminal()) {
		return Ack{}, w.late(r, b, now)
	}
	if r.Cancel != nil && !tidies(b.Events) && !cutsOff(b.Events) {
		return w.afterCancel(r, b, now)
	}
	if over(r, b.Path) && has(b.Events, KindStepCompleted) {
		return Ack{}, fmt.Errorf("journal: step %s of %s is of an iteration that has ended: %w", b.Path, b.Run, run.ErrState)
	}
	if r.arrived(b.Events) {
		a := w.ack(r, now)
		a.Inbox = r.Inbox()
		return a, nil
	}
	if r.State == run.Waiting && !evidenceOnly(b.Events) {
		return Ack{}, fmt.Errorf("journal: %s waits and records nothing: %w", b.Run, run.ErrState)
	}
	if r.State == run.NeedsReview && has(b.Events, KindEnded) {
		return Ack{}, fmt.Errorf("journal: %s waits for a person and cannot end: %w", b.Run, run.ErrState)
	}
	content := slices.ContainsFunc(b.Events, func(e session.Event) bool { return session.IsContent(e.Kind) })
	closed := w.value.Closing().State
	switch {
	case closed != "" && content:
		return Ack{}, fmt.Errorf("journal: session %s was %s: %w", w.key, closed, session.ErrClosed)
	case closed != "" && len(b.Events) == 1 && b.Events[0].Kind == session.KindClosed:
		return w.ack(r, now), nil // first write wins
	case content && b.Base != w.value.Ref().Version:
		return Ack{}, fmt.Errorf("journal: step %s extends version %d of %s, which is at %d: %w", b.Path, b.Base, w.key, w.value.Ref().Version, session.ErrStale)
	}
	events := make([]session.Event, len(b.Events))
	for i, e := range b.Events {
		e, err := w.complete(r, e, now)
		if err != nil {
			return Ack{}, err
		}
		if b.Path != "" && e.Kind != KindStatus {
			e.Batch = b.name()
		}
		events[i] = e
	}
	if err := w.stage(now, w.finale(r, events, now)...); err != nil {
		return Ack{}, err
	}
	return w.ack(r, now), nil
}

// complete adds the writer's fields to an event of a batch.
func (w *StateMachine) complete(r *Record, e session.Event, now time.Time) (session.Event, error) {
	switch e.Kind {
	case KindEnded:
		v, err := Decode[Ended](e)
		if err != nil {
			return e, err
		}
		if v.Run != r.ID || r.Home != w.key {
			return e, fmt.Errorf("journal: %s cannot end %s in the log of %s: %w", r.ID, v.Run, w.key, run.ErrState)
		}
		if v.State != run.Succeeded && v.Children == nil {
			v.Children = r.made()
		}
		v.Branches = r.branches
		return w.promote(v, now), nil
	case KindStart:
		v, err := Decode[Start](e)
		if err != nil || r.Home != w.key {
			return e, fmt.Errorf("journal: %s starts a run in the log of %s, not of %s: %w", r.ID, w.key, r.Home, errors.Join(run.ErrState, err))
		}
		v.By = r.By
		return NewEvent(KindStart, v)
	case KindRunWaiting, KindFanOut:
		if r.Home != w.key {
			return e, fmt.Errorf("journal: %s waits in the log of %s, not of %s: %w", r.ID, r.Home, w.key, run.ErrState)
		}
		if e.Kind == KindRunWaiting {
			v, err := Decode[RunWaiting](e)
			if err != nil {
				return e, err
			}
			return NewEvent(KindRunWaiting, v.expiring(now).leaving(r))
		}
		v, err := Decode[FanOut](e)
		if err != nil {
			return e, err
		}
		if v.Within, err = r.within(); err != nil {
			return e, err
		}
		v.By = r.By
		return NewEvent(KindFanOut, v)
	case KindReleased:
		v, err := Decode[Released](e)
		if err != nil || r.Home == w.key {
			return e, err
		}
		v.Next = w.next(r.ID, now)
		return event(KindReleased, v), nil
	case KindReview:
		if r.Home != w.key {
			return e, fmt.Errorf("journal: %s is reviewed in the log of %s, not of %s: %w", r.ID, r.Home, w.key, run.ErrState)
		}
		v, err := Decode[Review](e)
		if err != nil || v.Expires != 0 {
			return e, err
		}
		v.Expires = now.Add(DefaultExpiry).UnixMilli()
		return event(KindReview, v), nil
	case KindCacheWarmed:
		if v, err := Decode[CacheWarmed](e); err != nil || v.Run != r.ID {
			return e, fmt.Errorf("journal: %s cannot tell what warmed %s: %w", r.ID, v.Run, errors.Join(run.ErrState, err))
		}
		return e, nil
	case KindWarning, KindStatus, KindStepStarted, KindStepCompleted, KindLate, KindBranchOutcomes:
		return e, nil
	}
	if strings.HasPrefix(e.Kind, "session.") && e.Kind != session.KindOpened {
		return e, nil
	}
	return e, fmt.Errorf("journal: a step cannot record %s: %w", e.Kind, run.ErrNotSupported)
}

func (w *StateMachine) ack(r *Record, now time.Time) Ack {
	return Ack{Session: w.value, At: w.at, Time: time.UnixMilli(now.UnixMilli()).UTC(), State: r.State}
}

// name identifies the step that a batch belongs to.
func (b Batch) name() string { return string(b.Run) + "/" + string(b.Path) }

func has(events []session.Event, kind string) bool {
	return slices.ContainsFunc(events, func(e session.Event) bool { return e.Kind == kind })
}

// tidies reports whether a batch only helps to end a stopping run: it releases the run,
// warns, or disposes of branches.
func tidies(events []session.Event) bool {
	for _, e := range events {
		switch e.Kind {
		case KindReleased, KindWarning, KindStatus, KindLate, KindBranchOutcomes, session.KindRejected, session.KindClosed:
		case KindStepCompleted:
			if d, err := Decode[StepCompleted](e); err != nil || d.Kind != StepReject {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// evidenceOnly reports whether a batch is a late outcome.
func evidenceOnly(events []session.Event) bool { return len(events) == 1 && events[0].Kind == KindLate }

// cutsOff reports whether a batch is the review of a run whose code was given up during a
// call with a recorded intent.
func cutsOff(events []session.Event) bool {
	for _, e := range events {
		if e.Kind != KindReview {
			continue
		}
		if v, err := Decode[Review](e); err == nil && v.cutOff() {
			return true
		}
	}
	return false
}

// late records the outcome of an attempt that lost the run as evidence.
func (w *StateMachine) late(r *Record, b Batch, now time.Time) error {
	var stop error
	switch {
	case r.State.Terminal():
		stop = fmt.Errorf("journal: %s %s: %w", b.Run, r.State.Past(), run.ErrSuperseded)
	case r.State == run.NeedsReview:
		stop = fmt.Errorf("journal: %s was given up and waits for a person: %w", b.Run, run.ErrSuperseded)
	case r.Attempt != b.Attempt:
		stop = fmt.Errorf("journal: attempt %d of %s, the log of %s is at %d: %w", b.Attempt, b.Run, w.key, r.Attempt, run.ErrSuperseded)
	default:
		stop = fmt.Errorf("journal: attempt %d of %s holds session %s no more; claim it again: %w", b.Attempt, b.Run, w.key, run.ErrSuperseded)
	}
	for _, e := range b.Events {
		if e.Kind != KindStepCompleted {
			continue
		}
		d, err := b.evidence(e)
		if err != nil {
			return err
		}
		if err := w.stage(now, event(KindLate, d)); err != nil {
			return err
		}
	}
	return stop
}

// keepLate records the outcome of a call of an attempt that lost the run; another
// process sends it.
func (w *StateMachine) keepLate(d StepCompleted, now time.Time) error {
	r := w.state.Run(d.Run)
	switch {
	case r == nil:
		return fmt.Errorf("journal: %s is not in the log of %s: %w", d.Run, w.key, run.ErrUnknownRun)
	case r.Attempt <= d.Attempt && !r.State.Terminal() && !(r.State == run.NeedsReview && r.Review.cutOff()):
		return fmt.Errorf("journal: attempt %d of %s is not superseded: %w", d.Attempt, d.Run, run.ErrState)
	}
	if s := r.steps[d.Path]; s != nil && s.Attempt == d.Attempt {
		return nil // it was recorded in time
	}
	return w.stage(now, event(KindLate, d))
}

// Late returns the signal that carries the outcome in a batch, which its session's log
// rejected, to the current holder of the session; nil if the batch has no outcome.
func (b Batch) Late() *Signal {
	for _, e := range b.Events {
		if e.Kind == KindStepCompleted {
			if d, err := b.evidence(e); err == nil {
				return &Signal{To: b.Session, Run: b.Run, Late: &d}
			}
		}
	}
	return nil
}

// evidence is an outcome without the row that it would have added; the row's data move
// into its value.
func (b Batch) evidence(e session.Event) (StepCompleted, error) {
	d, err := Decode[StepCompleted](e)
	if err != nil || !d.Row {
		return d, err
	}
	d.Row = false
	for _, row := range b.Events {
		if row.Kind == session.KindChunk {
			d.Value = row.Data
		}
	}
	return d, nil
}

// afterCancel records only the outcome of a call with a recorded intent, and the end.
// It records no content and no new intents.
func (w *StateMachine) afterCancel(r *Record, b Batch, now time.Time) (Ack, error) {
	stop := fmt.Errorf("%w: %s", run.ErrCancelled, r.Cancel.Reason)
	if has(b.Events, KindEnded) || has(b.Events, KindReview) {
		e := Ended{Attempt: r.Attempt, Run: r.ID, Workflow: r.Task.Workflow}
		e.Usage, e.Lost, e.Steps = r.spent()
		if len(r.made()) > 0 && !has(b.Events, KindEnded) { // an execution that ends the run counts its forks itself
			e.Settle = w.key.ID
		}
		var events []session.Event
		for _, ev := range b.Events {
			if ev.Kind == KindStatus {
				events = append(events, ev)
			}
			if ev.Kind != KindEnded {
				continue
			}
			var err error
			if e, err = Decode[Ended](ev); err != nil {
				return Ack{}, err
			}
		}
		// The earlier request wins.
		e.State, e.Code, e.Error, e.Result, e.Output, e.Children = run.Cancelled, run.CodeCancelled, r.Cancel.Reason, nil, "", r.made()
		e.Branches = r.branches
		ev := w.promote(e, now)
		ev.Batch = b.name()
		if err := w.stage(now, w.finale(r, append(events, ev), now)...); err != nil {
			return Ack{}, err
		}
		return w.ack(r, now), nil
	}
	for _, e := range b.Events {
		if e.Kind != KindStepCompleted {
			continue
		}
		d, err := b.evidence(e)
		if err != nil {
			return Ack{}, err
		}
		if _, open := r.intents[d.Announced()]; !open {
			continue
		}
		done := event(KindStepCompleted, d)
		done.Batch = b.name()
		if err := w.stage(now, done); err != nil {
			return Ack{}, err
		}
	}
	return Ack{}, stop
}
