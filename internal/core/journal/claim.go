package journal

import (
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Claim decides about a claim; see [Store].
func (w *StateMachine) Claim(c Claim, now time.Time) (*ClaimResult, error) {
	if c.Home != c.Session {
		return w.claimChild(c, now)
	}
	r := w.state.Run(c.Run)
	if r == nil || r.Home != w.key && c.Task == nil {
		if c.Task == nil {
			return nil, fmt.Errorf("journal: %s is not in the log of %s: %w", c.Run, w.key, run.ErrUnknownRun)
		}
		return w.submit(c, now)
	}
	if c.Task != nil && c.Task.Digest() != r.Digest {
		return nil, fmt.Errorf("journal: id %s: %w; choose another id or send the same body", c.Run, run.ErrKeyReused)
	}
	switch {
	case r.State.Terminal(), r.State == run.NeedsReview, r.State == run.Waiting && protection.WakeNumbers, c.Enqueue:
		return w.grant(r, r.State), nil
	case protection.DispatchSeen && c.Seen != nil && c.Seen.Attempt != r.Attempt:
		return nil, fmt.Errorf("journal: %s is at attempt %d, its dispatch saw %d: %w", c.Run, r.Attempt, c.Seen.Attempt, run.ErrSuperseded)
	case r.State == run.Running && w.opened && r.Epoch == w.state.Epoch:
		return nil, fmt.Errorf("journal: %s executes here already: %w", c.Run, run.ErrState)
	case r.Cancel != nil:
		if err := w.end(r, run.Cancelled, run.CodeCancelled, r.Cancel.Reason, now); err != nil {
			return nil, err
		}
		return w.grant(r, run.Cancelled), nil
	case r.pinned != "" && r.pinned != c.Revision:
		return nil, fmt.Errorf("journal: %s is pinned to revision %q of %s, offered here is %q: %w", r.ID, r.pinned, r.Task.Workflow, c.Revision, run.ErrNotSupported)
	case w.value.Closing().State != "", w.state.branchEnded(): // while it waited for the session
		if err := w.end(r, run.Failed, run.CodeClosed, "the session has ended: fork it to continue", now); err != nil {
			return nil, err
		}
		return w.grant(r, run.Failed), nil
	case w.state.Active != "" && w.state.Active != c.Run, w.state.cleansBefore(r.ID), mustWait(r), r.Task.NotBefore.After(now), w.state.quarantine != nil:
		return w.grant(r, run.Queued), nil
	}
	c.Death = death(c.Death)
	d, err := r.judge(c, w.incarnation)
	switch {
	case err != nil:
		return nil, err
	case d.guilty():
		return w.condemn(r, d, c.Death, now)
	case d.All == 0: // it was a suspect when the node checked
		c.Group, c.Death = 0, ""
	case d.Group == 0:
		c.Group = 0
	}
	return w.claim(r.ID, r.Task, c, r.Attempt+1, now)
}

// condemn lets an operator decide about a run that ends its nodes.
func (w *StateMachine) condemn(r *Record, d Deaths, death string, now time.Time) (*ClaimResult, error) {
	v := Review{
		Attempt: r.Attempt, Code: run.CodePoison, Expires: now.Add(DefaultExpiry).UnixMilli(), Run: r.ID,
		Reason: w.poison(d, death),
	}
	events := []session.Event{event(KindReview, v)}
	if b := r.Task.Branch; b != nil && b.WarmsCache { // the branches behind it need not wait for an operator
		events = append(events, event(KindCacheWarmed, CacheWarmed{Parent: *b.Parent(), Run: r.ID}))
	}
	if err := w.stage(now, events...); err != nil {
		return nil, err
	}
	return w.grant(r, run.NeedsReview), nil
}

// submit records a new task, and claims it immediately unless another run holds the
// session.
func (w *StateMachine) submit(c Claim, now time.Time) (*ClaimResult, error) {
	events := w.opening(c)
	if state := w.value.Closing().State; state != "" {
		return nil, fmt.Errorf("journal: session %s was %s: %w; fork it to continue", w.key, state, session.ErrClosed)
	}
	if w.state.branch != "" { // the end of the branch seals it
		return nil, fmt.Errorf("journal: session %s is a branch of a fan-out, for one run: %w; fork it to continue", w.key, session.ErrClosed)
	}
	if w.state.OfKey() {
		return nil, fmt.Errorf("journal: %s is the log of a limit or of an event: %w; name another session", w.key, run.ErrNotSupported)
	}
	if (c.Task.ForkOf != nil || c.Task.Resumes != nil) && len(events) == 0 { // a check before the claim found it free
		return nil, fmt.Errorf("journal: task %s: %w: session %s of the fork exists already; leave session out to get a new one", c.Run, run.ErrMalformed, w.key)
	}
	sub := Submitted{Behind: w.state.Active, By: c.Task.By, Digest: c.Task.Digest(), Limit: c.Task.Limit, Says: c.Task.Says, Task: c.Task.wire(), Via: c.Task.Via}
	if next := w.next("", now); sub.Behind == "" && next != nil {
		sub.Behind = next.Run
	}
	if len(w.state.Queue) >= maxQueue {
		return nil, fmt.Errorf("%w: %d runs wait for session %s; retry when some have ended", run.ErrBusy, len(w.state.Queue), w.key)
	}
	events = append(events, event(KindSubmitted, sub))
	if c.Enqueue && c.Cancel != nil {
		if err := w.stage(now, events...); err != nil {
			return nil, err
		}
		if err := w.cancel(w.state.Run(c.Run), *c.Cancel, now); err != nil {
			return nil, err
		}
		return w.grant(w.state.Run(c.Run), run.Cancelled), nil
	}
	if sub.Behind != "" {
		if err := w.stage(now, events...); err != nil {
			return nil, err
		}
		return w.grant(w.state.Run(c.Run), run.Queued), nil
	}
	if err := w.stage(now, events...); err != nil {
		return nil, err
	}
	if c.Enqueue || mustWait(w.state.Run(c.Run)) || c.Task.NotBefore.After(now) || w.state.quarantine != nil {
		return w.grant(w.state.Run(c.Run), run.Queued), nil // the relay offers it
	}
	return w.claim(c.Run, *c.Task, c, 1, now)
}

func (w *StateMachine) claim(id run.ID, t Task, c Claim, attempt uint64, now time.Time) (*ClaimResult, error) {
	ev := Claimed{
		Attempt: attempt, Death: c.Death, Epoch: w.nextEpoch(), Group: uint64(max(c.Group, 0)), Home: c.Home, Incarnation: w.incarnation,
		Revision: c.Revision, Run: id, Workflow: t.Workflow,
	}
	if c.Seen != nil {
		ev.Seen = c.Seen.Attempt
	}
	if err := w.stage(now, event(KindClaimed, ev)); err != nil {
		return nil, err
	}
	return w.grant(w.state.Run(id), run.Running), nil
}

func (w *StateMachine) nextEpoch() uint64 {
	if w.opened {
		return w.state.Epoch
	}
	return w.state.Epoch + 1
}

func (w *StateMachine) claimChild(c Claim, now time.Time) (*ClaimResult, error) {
	r := w.state.Run(c.Run)
	switch {
	case r != nil && c.Attempt < r.Attempt:
		return nil, fmt.Errorf("journal: %s attempt %d, %s is at %d: %w", c.Run, c.Attempt, w.key, r.Attempt, run.ErrSuperseded)
	case r != nil && r.State == run.Cancelled:
		return nil, fmt.Errorf("%w: %s in session %s: %s", run.ErrCancelled, c.Run, w.key, r.Ended.Error)
	case r != nil && w.value.Closing().State != "":
		return w.grant(r, run.Running), nil // no event follows the end of a branch, but its journal is read
	case w.state.Active != "" && w.state.Active != c.Run:
		return nil, fmt.Errorf("journal: session %s is held by run %s: %w", w.key, w.state.Active, run.ErrBusy)
	case r != nil && r.Attempt == c.Attempt && w.opened && r.Epoch == w.state.Epoch:
		return w.grant(r, run.Running), nil
	}
	events := append(w.opening(c), event(KindClaimed, Claimed{
		Attempt: c.Attempt, Epoch: w.nextEpoch(), Home: c.Home, Incarnation: w.incarnation, Revision: c.Revision, Run: c.Run,
	}))
	if err := w.stage(now, events...); err != nil {
		return nil, err
	}
	return w.grant(w.state.Run(c.Run), run.Running), nil
}

// opening returns the first events of a session that does not exist yet.
func (w *StateMachine) opening(c Claim) []session.Event {
	if w.at.Seq > 0 || len(w.staged) > 0 {
		return nil
	}
	w.root = w.key.ID
	if c.Root != "" {
		w.root = c.Root
	}
	w.value = session.Open(w.key, w.root)
	if c.Open.Kind == "" {
		c.Open.Kind = session.OpenLeaf
	}
	return append([]session.Event{session.OpenedEvent(c.Open)}, c.Events...)
}

func (w *StateMachine) grant(r *Record, s run.State) *ClaimResult {
	g := &ClaimResult{State: s, Session: w.value, Journal: w.state.JournalOf(r.ID), Epoch: w.state.Epoch}
	cp := r.copy()
	g.Record, g.Attempt, g.Started, g.Base = cp, r.Attempt, r.Started, r.Base
	return g
}
