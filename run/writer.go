package run

import (
	"fmt"
	"slices"
	"time"

	"github.com/rathcluster/rath/session"
)

// Bounds of one session.
const (
	// MaxQueue is how many runs may wait for one session.
	MaxQueue = 64
	// MaxClaims is how often a run may be claimed without recording a new step
	// before it needs review.
	MaxClaims = 5
)

// Writer is the pure half of a session's single writer. It folds the commits
// of the log, decides what a request appends, and stages the events; its
// driver takes the staged commit, appends it, and reports back:
//
//	answer, err := w.Claim(c, now)   // or Commit, Signal; as many as wait
//	if commit, ok := w.Take(); ok {
//		at, err := log.Append(ctx, w.At(), commit)
//		if err != nil { /* this writer is finished: drop it */ }
//		w.Committed(at)
//	}
//	// only now tell the callers
//
// Between Take and Committed no request may be made. It is not safe for
// concurrent use.
type Writer struct {
	key         session.Key
	root        session.ID
	incarnation string
	resolver    session.Resolver
	book        Book
	value       session.Session
	at          session.Position
	opened      bool // this incarnation has its epoch
	taken       bool
	staged      []session.Event
	fresh       []*session.Session // made by staged events, to be marked with their commit
	err         error
}

// NewWriter returns the writer of a session whose log is empty or not folded
// yet.
func NewWriter(k session.Key, incarnation string, r session.Resolver) *Writer {
	return &Writer{key: k, incarnation: incarnation, resolver: r, value: session.Open(k, k.ID), root: k.ID}
}

// Fold takes the next commit of the log.
func (w *Writer) Fold(e session.Entry) error {
	w.root = e.Commit.Root
	if w.at.Seq == 0 {
		w.value = session.Open(w.key, w.root)
	}
	first := len(w.fresh)
	for _, ev := range e.Commit.Events {
		if err := w.apply(ev); err != nil {
			return fmt.Errorf("run: fold commit %d of %s: %w", e.Commit.Seq, w.key, err)
		}
	}
	w.settle(e.At, first)
	return nil
}

// settle marks what a commit made as made by it.
func (w *Writer) settle(at session.Position, first int) {
	w.at = at
	w.value = w.value.MadeBy(at)
	for _, s := range w.fresh[first:] {
		*s = s.MadeBy(at)
	}
	w.fresh = w.fresh[:0]
}

func (w *Writer) apply(e session.Event) error {
	v, err := session.Apply(w.value, e, w.resolver)
	if err != nil {
		return err
	}
	w.value = v
	if err := w.book.Apply(w.key, e, v); err != nil {
		return err
	}
	switch e.Kind {
	case KindDone:
		if d, err := Read[Done](e); err == nil {
			if r := w.book.Run(d.Run); r != nil && r.steps[d.Path] != nil {
				w.fresh = append(w.fresh, &r.steps[d.Path].Session)
			}
		}
	case KindClaimed:
		if c, err := Read[Claimed](e); err == nil {
			w.fresh = append(w.fresh, &w.book.Run(c.Run).Base)
		}
	}
	return nil
}

// Session returns the session as of all commits and staged events.
func (w *Writer) Session() session.Session { return w.value }

// Book returns the fold of the runs. The caller must not keep it across calls.
func (w *Writer) Book() *Book { return &w.book }

// At returns the position of the last commit.
func (w *Writer) At() session.Position { return w.at }

// Epoch returns the epoch that this incarnation writes with; zero before its
// first commit.
func (w *Writer) Epoch() uint64 {
	if !w.opened {
		return 0
	}
	return w.book.Epoch
}

// stage records events for the next commit. Session events are tried first,
// so that a batch is staged whole or not at all.
func (w *Writer) stage(now time.Time, events ...session.Event) error {
	if w.err != nil {
		return w.err
	}
	trial := w.value
	for _, e := range events {
		e.Time = now
		var err error
		if trial, err = session.Apply(trial, e, w.resolver); err != nil {
			return err
		}
	}
	if !w.opened {
		w.opened = true
		events = append([]session.Event{event(KindWriter, WriterOpened{Epoch: w.book.Epoch + 1, Incarnation: w.incarnation})}, events...)
	}
	for _, e := range events {
		e.Time = time.UnixMilli(now.UnixMilli()).UTC()
		if err := w.apply(e); err != nil {
			w.err = fmt.Errorf("run: stage %s for %s: %w", e.Kind, w.key, err)
			return w.err
		}
		w.staged = append(w.staged, e)
	}
	return nil
}

// Take returns the commit of everything staged; ok is false if nothing is.
func (w *Writer) Take() (c session.Commit, ok bool) {
	if len(w.staged) == 0 {
		return c, false
	}
	w.taken = true
	return session.Commit{
		Key: w.key, Root: w.root, Seq: w.at.Seq + 1, Epoch: w.book.Epoch, Prev: w.at.Hash, Events: w.staged,
	}, true
}

// StagedBytes estimates the size of the staged commit.
func (w *Writer) StagedBytes() int {
	n := 0
	for i := range w.staged {
		n += len(w.staged[i].Data) + 160
	}
	return n
}

// Committed reports that the commit which Take returned is durable at a
// position.
func (w *Writer) Committed(at session.Position) {
	w.settle(at, 0)
	w.staged, w.taken = nil, false
}

// Finish marks the answer with the commit that made it. Drivers call it when
// the writer staged something for the claim.
func (g *Granted) Finish(at session.Position) {
	g.Session = g.Session.MadeBy(at)
	if _, ok := g.Base.Link(); !ok {
		g.Base = g.Base.MadeBy(at)
	}
	g.Record.Base = g.Base
}

// Finish marks the answer with the commit that made it. Drivers call it when
// the writer staged something for the batch.
func (a *Ack) Finish(at session.Position) {
	a.Session, a.At = a.Session.MadeBy(at), at
}

// Claim decides about a claim; see [Store].
func (w *Writer) Claim(c Claim, now time.Time) (*Granted, error) {
	if c.Home != c.Session {
		return w.claimChild(c, now)
	}
	r := w.book.Run(c.Run)
	if r == nil {
		if c.Task == nil {
			return nil, fmt.Errorf("run: %s is not in the log of %s: %w", c.Run, w.key, ErrUnknownRun)
		}
		return w.submit(c, now)
	}
	if c.Task != nil && c.Task.Digest() != r.Digest {
		return nil, fmt.Errorf("run: id %s: %w; choose another id or send the same body", c.Run, ErrKeyReused)
	}
	switch {
	case r.State.Terminal(), r.State == NeedsReview, r.State == Waiting:
		return w.grant(r, r.State), nil
	case r.State == Running && w.opened && r.Epoch == w.book.Epoch:
		return nil, fmt.Errorf("run: %s executes here already: %w", c.Run, ErrState)
	case w.book.Active != "" && w.book.Active != c.Run:
		return w.grant(r, Queued), nil
	case r.Cancel != nil:
		return w.grant(r, Cancelled), w.end(r, Cancelled, CodeCancelled, r.Cancel.Reason, now)
	case r.Claims >= MaxClaims:
		v := Review{
			Attempt: r.Attempt, Code: CodePoison, Run: r.ID,
			Reason: fmt.Sprintf("claimed %d times without a new step", r.Claims),
		}
		if err := w.stage(now, event(KindReview, v)); err != nil {
			return nil, err
		}
		return w.grant(r, NeedsReview), nil
	}
	return w.claim(r.ID, r.Task, c, r.Attempt+1, now)
}

// submit records a task that the log does not know, and claims it at once
// unless another run holds the session.
func (w *Writer) submit(c Claim, now time.Time) (*Granted, error) {
	var events []session.Event
	if w.at.Seq == 0 && len(w.staged) == 0 {
		w.setRoot(c.Root)
		events = append(events, session.OpenedEvent(c.Open))
		events = append(events, c.Events...)
	} else if state := w.value.Closing().State; state != "" {
		return nil, fmt.Errorf("run: session %s was %s: %w; fork it to go on", w.key, state, session.ErrClosed)
	}
	sub := Submitted{Behind: w.book.Active, Digest: c.Task.Digest(), Task: c.Task.wire()}
	if sub.Behind == "" && len(w.book.Queue) > 0 {
		sub.Behind = w.book.Queue[0]
	}
	if sub.Behind != "" && len(w.book.Queue) >= MaxQueue {
		return nil, fmt.Errorf("%w: %d runs wait for session %s; retry when some have ended", ErrBusy, len(w.book.Queue), w.key)
	}
	events = append(events, event(KindSubmitted, sub))
	if sub.Behind != "" {
		if err := w.stage(now, events...); err != nil {
			return nil, err
		}
		return w.grant(w.book.Run(c.Run), Queued), nil
	}
	if err := w.stage(now, events...); err != nil {
		return nil, err
	}
	return w.claim(c.Run, *c.Task, c, 1, now)
}

func (w *Writer) claim(id ID, t Task, c Claim, attempt uint64, now time.Time) (*Granted, error) {
	ev := Claimed{
		Attempt: attempt, Epoch: w.nextEpoch(), Home: c.Home, Incarnation: w.incarnation,
		Revision: c.Revision, Run: id, Workflow: t.Workflow,
	}
	if err := w.stage(now, event(KindClaimed, ev)); err != nil {
		return nil, err
	}
	return w.grant(w.book.Run(id), Running), nil
}

func (w *Writer) nextEpoch() uint64 {
	if w.opened {
		return w.book.Epoch
	}
	return w.book.Epoch + 1
}

func (w *Writer) claimChild(c Claim, now time.Time) (*Granted, error) {
	r := w.book.Run(c.Run)
	switch {
	case r != nil && c.Attempt < r.Attempt:
		return nil, fmt.Errorf("run: %s attempt %d, %s is at %d: %w", c.Run, c.Attempt, w.key, r.Attempt, ErrSuperseded)
	case w.book.Active != "" && w.book.Active != c.Run:
		return nil, fmt.Errorf("run: session %s is held by run %s: %w", w.key, w.book.Active, ErrBusy)
	case r != nil && r.Attempt == c.Attempt && w.opened && r.Epoch == w.book.Epoch:
		return w.grant(r, Running), nil
	}
	var events []session.Event
	if w.at.Seq == 0 && len(w.staged) == 0 {
		w.setRoot(c.Root)
		events = append(events, session.OpenedEvent(c.Open))
		events = append(events, c.Events...)
	}
	events = append(events, event(KindClaimed, Claimed{
		Attempt: c.Attempt, Epoch: w.nextEpoch(), Home: c.Home, Incarnation: w.incarnation, Revision: c.Revision, Run: c.Run,
	}))
	if err := w.stage(now, events...); err != nil {
		return nil, err
	}
	return w.grant(w.book.Run(c.Run), Running), nil
}

func (w *Writer) setRoot(root session.ID) {
	if root != "" {
		w.root = root
	}
	w.value = session.Open(w.key, w.root)
}

func (w *Writer) grant(r *Record, s State) *Granted {
	g := &Granted{State: s, Session: w.value, Journal: w.book.JournalOf(r.ID), Epoch: w.book.Epoch}
	cp := *r
	g.Record, g.Attempt, g.Task, g.Started, g.Base = &cp, r.Attempt, r.Task, r.Started, r.Base
	return g
}

// end stages the end of a run that no execution will end itself.
func (w *Writer) end(r *Record, s State, code Code, text string, now time.Time) error {
	e := Ended{Attempt: r.Attempt, Code: code, Error: text, Run: r.ID, State: s, Workflow: r.Task.Workflow}
	return w.stage(now, w.promote(e))
}

// promote completes the event that ends a run with what follows from it.
func (w *Writer) promote(e Ended) session.Event {
	e.Next = w.next(e.Run)
	return event(KindEnded, e)
}

// next is the queued run that may claim the session once leaving lets it go.
func (w *Writer) next(leaving ID) *Offer {
	if w.book.Active != leaving && w.book.Active != "" {
		return nil
	}
	for _, id := range w.book.Queue {
		if r := w.book.Run(id); id != leaving && r.Cancel == nil {
			return &Offer{Revision: r.Task.Revision, Run: id, Workflow: r.Task.Workflow}
		}
	}
	return nil
}

// Commit decides about a batch; see [Store]. The Session of the answer is as
// of the batch; the driver marks it with the position that it got.
func (w *Writer) Commit(b Batch, now time.Time) (Ack, error) {
	r := w.book.Run(b.Run)
	if r == nil {
		return Ack{}, fmt.Errorf("run: %s is not in the log of %s: %w", b.Run, w.key, ErrUnknownRun)
	}
	if s := r.steps[b.Path]; s != nil && slices.ContainsFunc(b.Events, func(e session.Event) bool { return e.Kind == KindDone }) {
		return Ack{Session: s.Session, Recorded: s, At: w.at, Time: s.Time}, nil
	}
	if r.Attempt != b.Attempt || r.Epoch != w.Epoch() || r.State.Terminal() {
		return Ack{}, w.late(r, b, now)
	}
	if r.Cancel != nil && !ends(b.Events) {
		return Ack{}, w.afterCancel(r, b, now)
	}
	content := slices.ContainsFunc(b.Events, func(e session.Event) bool { return session.IsContent(e.Kind) })
	switch {
	case content && w.value.Closing().State != "":
		return Ack{}, fmt.Errorf("run: session %s was %s: %w", w.key, w.value.Closing().State, session.ErrClosed)
	case content && b.Base != w.value.Ref().Version:
		return Ack{}, fmt.Errorf("run: step %s extends version %d of %s, which is at %d: %w", b.Path, b.Base, w.key, w.value.Ref().Version, session.ErrStale)
	}
	events := make([]session.Event, len(b.Events))
	for i, e := range b.Events {
		if e.Kind == KindEnded {
			v, err := Read[Ended](e)
			if err != nil {
				return Ack{}, err
			}
			if r.Cancel != nil { // the request came first and wins
				v.State, v.Code, v.Error, v.Result, v.Output = Cancelled, CodeCancelled, r.Cancel.Reason, nil, ""
			}
			e = w.promote(v)
		}
		if e.Kind == KindReleased && r.Home != w.key {
			v, err := Read[Released](e)
			if err != nil {
				return Ack{}, err
			}
			v.Next = w.next(r.ID)
			e = event(KindReleased, v)
		}
		if b.Path != "" {
			e.Batch = string(b.Run) + "/" + string(b.Path)
		}
		events[i] = e
	}
	if err := w.stage(now, events...); err != nil {
		return Ack{}, err
	}
	return Ack{Session: w.value, Time: time.UnixMilli(now.UnixMilli()).UTC()}, nil
}

func ends(events []session.Event) bool {
	return slices.ContainsFunc(events, func(e session.Event) bool {
		return e.Kind == KindEnded || e.Kind == KindReview || e.Kind == KindReleased
	})
}

// late keeps the outcome of a superseded attempt as evidence.
func (w *Writer) late(r *Record, b Batch, now time.Time) error {
	stop := fmt.Errorf("run: attempt %d of %s, the log is at %d: %w", b.Attempt, b.Run, r.Attempt, ErrSuperseded)
	if r.State.Terminal() {
		stop = fmt.Errorf("run: %s has %s: %w", b.Run, r.State, ErrSuperseded)
	}
	for _, e := range b.Events {
		if e.Kind != KindDone {
			continue
		}
		if d, err := Read[Done](e); err == nil {
			d.Row = false
			if err := w.stage(now, event(KindLate, d)); err != nil {
				return err
			}
		}
	}
	return stop
}

// afterCancel records no more content and no new intents, but still what
// became of a call that had its intent.
func (w *Writer) afterCancel(r *Record, b Batch, now time.Time) error {
	if _, open := r.intents[b.Path]; open {
		for _, e := range b.Events {
			if e.Kind == KindDone {
				e.Batch = string(b.Run) + "/" + string(b.Path)
				if err := w.stage(now, e); err != nil {
					return err
				}
			}
		}
	}
	return fmt.Errorf("%w: %s", ErrCancelled, r.Cancel.Reason)
}

// Signal decides about a fact from outside a run. live reports whether an
// execution of the run is at work on this writer.
func (w *Writer) Signal(s Signal, now time.Time) error {
	r := w.book.Run(s.Run)
	if r == nil {
		return fmt.Errorf("run: %s is not in the log of %s: %w", s.Run, w.key, ErrUnknownRun)
	}
	if r.State.Terminal() {
		return fmt.Errorf("run: %s has %s already: %w", s.Run, r.State, ErrState)
	}
	switch {
	case s.Cancel != nil:
		if r.Cancel != nil {
			return nil
		}
		c := *s.Cancel
		c.Run = s.Run
		live := r.State == Running && w.opened && r.Epoch == w.book.Epoch
		if err := w.stage(now, event(KindCancel, c)); err != nil {
			return err
		}
		if !live {
			return w.end(r, Cancelled, CodeCancelled, c.Reason, now)
		}
		return nil
	case s.Resolve != nil:
		v := *s.Resolve
		if r.State != NeedsReview {
			return fmt.Errorf("run: %s is %s, not %s: %w", s.Run, r.State, NeedsReview, ErrState)
		}
		v.Run, v.Path, v.Workflow, v.Revision = s.Run, r.Review.Path, r.Task.Workflow, r.Task.Revision
		switch v.Decision {
		case Happened, Again:
			return w.stage(now, event(KindResolved, v))
		case Fail:
			if err := w.stage(now, event(KindResolved, v)); err != nil {
				return err
			}
			return w.end(r, Failed, CodeReview, v.Reason, now)
		}
		return fmt.Errorf("run: decision %q: want %s, %s or %s", v.Decision, Happened, Again, Fail)
	}
	return fmt.Errorf("run: signal for %s: %w", s.Run, ErrNotSupported)
}
