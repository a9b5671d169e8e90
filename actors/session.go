package actors

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// phase is the operation that a session actor is waiting for.
type phase uint8

const (
	loading    phase = iota // the fold of the log
	idle                    // requests
	appending               // the log, with one commit
	confirming              // the log's last position, before answering from memory
	saving                  // the snapshot that precedes passivation
	ended                   // the actor stops
)

// errAgain reports to the caller's side that a request was not decided because this
// activation ended: the request goes to the next one.
var errAgain = errors.New("actors: the activation ended before the request was decided")

// errDoubt marks an answer that an append left in doubt: the log may hold it or not.
var errDoubt = errors.New("actors: the commit may be in the log or not")

// sessionActor is the one writer of a session in this process. It owns a
// journal.StateMachine and drives it: requests are decided together, their commit is
// appended in a goroutine of its own, and they are answered only after the log has
// acknowledged it. Receive never blocks.
//
// An activation that only reads leaves no trace in the log; the writer opens
// its epoch with the first commit. Any doubt about the writer's memory ends the
// activation, and the next request folds the log again.
//
// An activation that is presumed unborn folds nothing: its first commit is appended to
// an empty log or fails, and so shows whether the presumption was right. Until then, no
// request is answered from memory whose answer depends on the presumption.
type sessionActor struct {
	sys    *System
	key    session.Key
	box    *mailbox
	self   *actor.PID
	phase  phase
	w      *journal.StateMachine
	unborn bool // presumed: w was not read from the log

	batch   []*request // decided, not answered
	current *request   // being decided
	fresh   uint64     // tick up to which w is known to be complete; zero: presumed
	pending uint64     // the value of fresh if the log agrees
	done    outcome    // of the one operation in progress; reused
	stop    bool       // asked to stop once idle
	saving  bool       // a snapshot is being saved while the actor continues
	timer   *time.Timer
	used    time.Time // time of the last operation
}

// outcome is the message that ends loading, appending, confirming and saving.
type outcome struct {
	signal
	phase  phase
	w      *journal.StateMachine
	commit commitlog.Commit
	at     commitlog.Position
	err    error
}

// Signals to a session actor. A signal to a stopped actor is harmless.
type (
	wakeUp   struct{ signal } // the mailbox holds a request
	lookIdle struct{ signal } // the idle time may be over
	quit     struct{ signal } // stop once no operation is in progress
)

var wake any = &wakeUp{}

// signal is embedded in each message that may reach a stopped actor.
type signal struct{}

// IgnoreDeadLetterLogging keeps late signals out of the log.
func (signal) IgnoreDeadLetterLogging() {}

// Receive implements protoactor's Actor.
func (a *sessionActor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		a.self = c.Self()
		if a.unborn {
			a.presume()
		} else {
			a.load()
		}
	case *wakeUp:
		a.advance()
	case *outcome:
		a.settle(m)
	case *lookIdle:
		a.passivate()
	case *saved:
		a.saved(m.err)
	case *quit:
		a.stop = true
		if a.phase == idle {
			a.advance()
		}
	case *actor.Stopping:
		// However the actor is stopped, its callers are answered.
		if a.phase != ended {
			a.end(fmt.Errorf("actors: the session actor of %s was stopped: %w", a.key, session.ErrUnavailable), errAgain)
		}
	}
}

// async runs a blocking operation in a goroutine of the system and reports its outcome
// as a message. At most one is in progress.
func (a *sessionActor) async(p phase, work func(o *outcome)) {
	a.phase = p
	a.done = outcome{phase: p}
	a.sys.work.Run(func() {
		defer func() {
			if v := recover(); v != nil {
				a.done.err = fmt.Errorf("actors: %s: %v: %w", a.key, v, session.ErrUnavailable)
				a.sys.log.Error("work for a session panicked", "session", a.key.String(), "panic", v, "stack", string(debug.Stack()))
			}
			a.sys.protoactor.Root.Send(a.self, &a.done)
		}()
		work(&a.done)
	})
}

func (a *sessionActor) load() {
	a.pending = a.sys.tick()
	a.async(loading, func(o *outcome) {
		ctx, cancel := context.WithTimeout(context.Background(), a.sys.o.AppendTimeout)
		defer cancel()
		o.w, o.err = journal.LoadStateMachine(ctx, a.sys.o.Log, a.sys.o.Values, a.key, a.sys.o.Incarnation)
	})
}

// presume begins with an empty log instead of reading it.
func (a *sessionActor) presume() {
	a.w = journal.NewStateMachine(a.key, a.sys.o.Incarnation, a.sys.o.Values.Resolver(context.Background()))
	a.w.Promise(a.sys.o.Durability)
	a.schedule(a.sys.idleFor())
	a.phase = idle
	a.advance()
}

// settle handles the outcome of an operation and continues.
func (a *sessionActor) settle(o *outcome) {
	if a.phase != o.phase {
		return // of an activation that has ended
	}
	switch o.phase {
	case loading:
		if err := o.err; err != nil {
			if !errors.Is(err, session.ErrTooOld) && !errors.Is(err, session.ErrForeign) && !errors.Is(err, session.ErrArchived) {
				err = unavailable(err)
			}
			a.end(err, err)
			return
		}
		a.w, a.fresh = o.w, a.pending
		a.w.Promise(a.sys.o.Durability)
		a.publishPosition()
		a.schedule(a.sys.idleFor())
	case appending:
		if o.err != nil {
			a.appendFailed(o.err)
			return
		}
		a.committed(o)
	case confirming:
		if o.err != nil {
			err := unavailable(fmt.Errorf("actors: ask where the log of %s stands: %w", a.key, o.err))
			a.end(err, errAgain)
			return
		}
		if at := a.w.At(); o.at.Seq != at.Seq || o.at.Hash != at.Hash {
			err := fmt.Errorf("actors: %s stands at commit %d, this activation was at %d: %w", a.key, o.at.Seq, at.Seq, session.ErrConflict)
			a.end(err, err)
			return
		}
		a.fresh = a.pending
		a.answer(nil)
	case saving:
		a.warnUnsaved(o.err)
		if rest, ok := a.box.shut(!a.stop); ok {
			a.refuse(rest, errAgain)
			a.finish()
			return
		}
		a.schedule(a.sys.idleFor())
	}
	a.phase = idle
	a.advance()
}

// advance decides the waiting requests and starts the append, until none waits.
func (a *sessionActor) advance() {
	for a.phase == idle {
		if !a.decide() {
			if a.stop {
				a.leave()
			}
			return
		}
		if commit, ok := a.w.Take(); ok {
			a.append(commit)
			return
		}
		if a.mustConfirm() {
			a.confirm()
			return
		}
		a.answer(nil)
	}
}

// decide asks the writer for all waiting requests, up to the limits of one commit, and
// reports whether there were any.
func (a *sessionActor) decide() bool {
	o := &a.sys.o
	room, now := o.BatchBytes, time.Time{}
	for len(a.batch) < o.BatchMax {
		r := a.box.take(room, len(a.batch) == 0)
		if r == nil {
			break
		}
		a.current = r // panicked answers it
		if now.IsZero() {
			now, a.used = o.Now(), time.Now()
		}
		if err := r.late(); err != nil {
			a.current = nil
			r.reply(err)
			continue
		}
		a.ask(r, now)
		a.batch, a.current = append(a.batch, r), nil
		room -= r.size
		if r.alone {
			break
		}
	}
	return len(a.batch) > 0
}

// ask asks the writer one request.
func (a *sessionActor) ask(r *request, now time.Time) {
	switch r.ask {
	case askClaim:
		r.granted, r.err = a.w.Claim(r.claim, now)
	case askCommit:
		if holder := a.w.RunState().Incarnation; a.w.Epoch() == 0 && a.sys.other(holder) {
			// This activation holds no session and another incarnation does. It must
			// not append, even to keep the outcome as evidence: that would take the
			// session from its holder.
			r.err = fmt.Errorf("actors: run %s: %s was written by %s since: %w", r.batch.Run, a.key, holder, errTaken)
			return
		}
		r.ack, r.err = a.w.Commit(r.batch, now)
	case askApply:
		r.err = a.w.Signal(r.signal, now)
	case askHolder:
		b := a.w.RunState()
		r.holder = holder{incarnation: b.Incarnation, here: a.w.Epoch() != 0, busy: b.Active != "" || len(b.Queue) > 0 || b.OfKey(), active: b.Active}
	}
	r.staged = a.w.StagedBytes() > 0
}

// append makes a commit durable.
func (a *sessionActor) append(commit commitlog.Commit) {
	a.pending = a.sys.tick()
	at := a.w.At()
	if !protection.PersistBeforeReply {
		a.answer(nil)
	}
	a.async(appending, func(o *outcome) {
		o.commit = commit
		ctx, cancel := context.WithTimeout(context.Background(), a.sys.o.AppendTimeout)
		defer cancel()
		began := time.Now()
		o.at, o.err = a.sys.o.Log.Append(ctx, at, commit)
		if a.sys.o.OnAppend != nil {
			a.sys.o.OnAppend(commit, time.Since(began), o.err)
		}
	})
}

// committed answers a batch that is durable.
func (a *sessionActor) committed(o *outcome) {
	was := a.w.Session()
	a.w.Committed(o.at)
	a.fresh = a.pending
	a.publishPosition()
	kept := a.w.Session()
	a.sys.o.Values.Keep(kept)
	for _, r := range a.batch {
		if !r.staged || r.err != nil {
			continue
		}
		switch r.ask {
		case askClaim:
			r.granted.Finish(o.at, was, kept, o.commit.Events)
			if rec := a.w.RunState().Run(r.granted.Record.ID); rec != nil && !rec.Base.Unborn() {
				// rec.Base names the commit that made it, which is this one if other
				// requests of the batch preceded the claim.
				r.granted.Base, r.granted.Record.Base = rec.Base, rec.Base
			}
		case askCommit:
			if s := r.ack.Recorded; s != nil {
				r.ack.Session, r.ack.At = s.Session, o.at
				continue
			}
			if r.ack.Session == was { // nearly always, and one value is enough
				r.ack.Session, r.ack.At = kept, o.at
				continue
			}
			r.ack.Finish(o.at)
			if r.ack.Session.Ref() != kept.Ref() {
				a.sys.o.Values.Keep(r.ack.Session)
			}
		}
	}
	a.sys.publish(&commitlog.Entry{Commit: o.commit, At: o.at})
	o.commit = commitlog.Commit{}
	a.answer(nil)
	a.saveWhileActive()
}

// publishPosition updates the mailbox with the position of the log and its active run.
func (a *sessionActor) publishPosition() { a.box.setPosition(a.w.At(), a.w.RunState().Active) }

// answer replies to all of the batch: each with its own decision, or all with
// err.
func (a *sessionActor) answer(err error) {
	for i, r := range a.batch {
		a.batch[i] = nil
		if err != nil {
			r.reply(err)
		} else {
			r.reply(r.err)
		}
	}
	a.batch = a.batch[:0]
}

// mustConfirm reports whether the batch, for which nothing is appended, has answers
// that another writer may have invalidated since this one last read the log. Recorded
// steps stay valid. A claim or a signal that is rejected or answered from memory has to
// be confirmed, and so has every answer while the log was never read. The answer to
// askHolder needs no confirmation: the log checks every append that follows from it.
func (a *sessionActor) mustConfirm() bool {
	for _, r := range a.batch {
		switch r.ask {
		case askClaim, askApply:
			if r.tick > a.fresh {
				return true
			}
		case askCommit:
			if a.fresh == 0 {
				return true
			}
		}
	}
	return false
}

func (a *sessionActor) confirm() {
	a.pending = a.sys.tick()
	a.async(confirming, func(o *outcome) {
		ctx, cancel := context.WithTimeout(context.Background(), a.sys.o.AppendTimeout)
		defer cancel()
		e, err := a.sys.o.Log.Last(ctx, a.key)
		if err != nil && !errors.Is(err, session.ErrNotFound) {
			o.err = err
			return
		}
		o.at = e.At
	})
}

// appendFailed ends the activation: the staged events are not in the log, or may not
// be.
func (a *sessionActor) appendFailed(err error) {
	err = fmt.Errorf("actors: commit to %s: %w", a.key, err)
	switch {
	case errors.Is(err, session.ErrTooLarge):
		// Nothing was stored. If several requests shared the commit, each is tried on
		// its own, so that only a request that is too large fails.
		if len(a.batch) > 1 {
			for _, r := range a.batch {
				r.alone = true
			}
			a.end(errAgain, errAgain)
			return
		}
		a.end(err, errAgain)
	case errors.Is(err, session.ErrConflict):
		a.end(err, err)
	case errors.Is(err, session.ErrUnavailable):
		a.end(fmt.Errorf("%w: %w", errDoubt, err), errAgain)
	default:
		a.end(unavailable(err), errAgain)
	}
}

// unavailable marks an error of the log that is independent of the request, so that a
// run stops instead of recording it as a step's outcome. A timeout of the log's
// operation was not the caller's own deadline and must not look so.
func unavailable(err error) error {
	switch {
	case errors.Is(err, session.ErrUnavailable):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %s", session.ErrUnavailable, err.Error())
	}
	return fmt.Errorf("%w: %w", session.ErrUnavailable, err)
}

// end finishes an activation whose memory is not to be trusted: the batch is answered
// with the error decided, and waiting requests with the error waiting.
func (a *sessionActor) end(decided, waiting error) {
	a.phase = ended
	if a.current != nil {
		a.batch, a.current = append(a.batch, a.current), nil
	}
	// Shut first: a caller that has its answer and asks again reaches the next activation.
	rest, _ := a.box.shut(false)
	a.answer(decided)
	a.refuse(rest, waiting)
	a.finish()
}

func (a *sessionActor) refuse(rest []*request, err error) {
	for _, r := range rest {
		r.reply(err)
	}
}

// finish stops the actor; its mailbox is closed.
func (a *sessionActor) finish() {
	a.phase = ended
	a.w = nil
	if a.sys.leases.Has(a.key) { // its epoch has ended
		a.sys.work.Run(func() { a.sys.leases.End(a.key) })
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	a.sys.protoactor.Root.Stop(a.self)
}

// panicked is called by the middleware that recovers: the writer may be in the middle
// of a decision, so the activation ends.
func (a *sessionActor) panicked(v any) {
	if a.phase == ended {
		return
	}
	a.end(fmt.Errorf("actors: the session actor of %s panicked: %v: %w", a.key, v, session.ErrUnavailable), errAgain)
}

var _ actor.Actor = (*sessionActor)(nil)

// schedule checks for idleness after d. It does not use protoactor's ReceiveTimeout,
// whose timer changes the actor's state from another goroutine.
func (a *sessionActor) schedule(d time.Duration) {
	a.used = time.Now()
	if a.timer != nil {
		a.timer.Reset(d)
		return
	}
	self, root := a.self, a.sys.protoactor.Root
	a.timer = time.AfterFunc(d, func() { root.Send(self, &lookIdle{}) })
}

// errTaken marks a commit that was rejected because another process holds the session.
var errTaken = fmt.Errorf("actors: taken over: %w", run.ErrSuperseded)
