package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/internal/engine/chain"
	"github.com/rathcluster/rath/internal/engine/live"
	"github.com/rathcluster/rath/internal/engine/stepper"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// step is one step in flight.
type step struct {
	sc    *scope
	ex    *Execution
	ctx   context.Context
	asked journal.StepRequest
	s     session.Session // the session that the step extends or reads; zero for none
	log   session.Key     // where it is recorded
	old   bool            // s is not the newest value of its session
	// Parts of its record, for commit and make.
	content []session.Event // committed with the record
	beside  bool            // the pending edits of s stay pending
	exact   bool            // an error of its work is returned as the record has it
	// The tries of its work; nil for a step without a policy.
	tries *tries
	beat  atomic.Pointer[beat] // restarts the timeout of the try in flight
	// Set once it is recorded.
	recorded bool
	after    session.Session
	// The journal's decision.
	decision      journal.Decision
	record        *journal.Step
	began         time.Time
	flight        *live.Flight  // its live report; nil during replay
	takesMessages bool          // it is a call that takes messages
	messagesTo    uint64        // the place in the inbox up to which it has the messages
	requests      int           // the number of requests to a model in this attempt, including those before an interrupting message
	lost          session.Usage // the estimated usage of requests that were cut off
	// Parts of the record of a model call.
	cost   string
	prices string
	named  string
	passed []journal.PassedModel
	given  blob.Digest
	// Part of the record of a step that reads or writes a memory.
	vectors *chain.Vectors
}

// make completes a step for which the journal has decided. At replay, take takes over the
// recorded outcome; with a nil take, make returns the recorded error. Otherwise work
// executes the step and returns its record, which make commits. An error of work that
// [came] marks is the outcome, and is recorded; any other error leaves the step without a
// record.
func (st *step) make(take func() error, work func() (journal.StepCompleted, error)) error {
	if st.decision != journal.Replay {
		d, err := work()
		return st.finish(d, err)
	}
	st.recorded, st.after = true, st.record.Session
	if take == nil {
		return st.record.Code.Err(st.record.Error)
	}
	return take()
}

// ended is an error that is the outcome of a step's work.
type ended struct{ error }

// came marks an error of a step's work as its outcome; nil stays nil.
func came(err error) error {
	if err == nil {
		return nil
	}
	return &ended{err}
}

// maxError bounds the text of an error in the record of a step, in bytes.
const maxError = 4 << 10

// finish records the outcome of the step's work. It returns the error that prevented the
// record, or else the recorded error.
func (st *step) finish(d journal.StepCompleted, err error) error {
	why, isOutcome := err.(*ended)
	if err != nil && !isOutcome {
		return st.fail(err)
	}
	if isOutcome {
		d.Code, d.Error = cmp.Or(d.Code, run.CodeOf(why.error)), excerpt.Clip(why.Error(), maxError)
		if stop, ok := st.outcome(why.error); !ok {
			if st.asked.Effect == tool.NonIdempotent.String() {
				st.lastWord(stop, d)
			}
			return stop
		}
		if d.Retry == 0 && holds(st, why.error) {
			return hold(st, d)
		}
	}
	ack, err := st.commit(d, st.content...)
	if err != nil {
		return err
	}
	st.recorded, st.after = true, ack.Session
	if isOutcome && !st.exact {
		return why.error
	}
	return d.Code.Err(d.Error)
}

// newStep returns a step that is part of another one, or of the end of the run.
func (ex *Execution) newStep(ctx context.Context, log session.Key, s session.Session, asked journal.StepRequest) *step {
	return &step{ex: ex, ctx: ctx, asked: asked, s: s, log: log, began: time.Now()}
}

// substep opens such a step without recording its duration.
func (ex *Execution) substep(ctx context.Context, log session.Key, s session.Session, asked journal.StepRequest) (*step, error) {
	st := ex.newStep(ctx, log, s, asked)
	st.began = time.Time{}
	return st, st.decide()
}

// begin opens the next step of the scope. extends means that the step adds content to s,
// so that an older value must be forked first. The caller must call end.
func (p *spot) begin(ctx context.Context, kind, name string, s session.Session, extends bool, effect string, args ...string) (*step, error) {
	made := journal.StepRequest{Kind: kind, Name: name}
	sc, path, err := enter(p, made)
	if err != nil {
		return nil, err
	}
	ex := sc.ex
	st := &step{sc: sc, ex: ex, ctx: ctx, s: s, log: ex.levels.owner(path).home, began: time.Now()}
	// The digest is of the value as the author holds it, so that it is the
	// same on every execution.
	st.asked = journal.StepRequest{Path: path, Kind: kind, Name: name, Input: ex.sessions.inputDigest(s, args), Effect: effect}
	if ex.rt.OnStep != nil {
		ex.rt.OnStep(ex.levels.owner(path).run, path, caller())
	}
	if extends || ex.forks.holds(path, s.Key()) {
		if st.s, err = ex.forks.own(ctx, path, s, extends); err != nil {
			st.end()
			return nil, st.fail(err)
		}
	}
	if ex.forks.holds(path, st.s.Key()) {
		ex.mu.Lock()
		st.log, st.old = st.s.Key(), ex.sessions.older(st.s)
		ex.mu.Unlock()
	}
	if st.log == st.s.Key() && !st.old {
		if err := st.shorten(s); err != nil {
			st.end()
			return nil, st.fail(err)
		}
	}
	if err := st.decide(); err != nil {
		st.end()
		if st.decision == journal.Mismatch {
			err = st.mismatch(err, s, args)
		}
		return nil, st.fail(err)
	}
	st.ctx = st.context(ctx)
	st.fly(live.Works, "")
	return st, nil
}

// fly reports the step as in flight; it does nothing for a recorded step. args are the
// tool's arguments.
func (st *step) fly(d live.Doing, args string) {
	if st.decision == journal.Replay || st.ex.pos.recorder != nil {
		return
	}
	ex, asked := st.ex, &st.asked
	st.flight = ex.flights.Begin(live.Step{Path: asked.Path, Kind: asked.Kind, Name: asked.Name, Doing: d, Began: st.began}, args)
	if ex.rt.OnStart != nil {
		did := ""
		if args != "" {
			did = live.CallSummary(asked.Name, args, tool.Outcome{})
		}
		ex.rt.OnStart(Start{Session: st.log, Run: ex.id, Path: asked.Path, Attempt: ex.attempt, Kind: asked.Kind, Name: asked.Name, Did: did})
	}
}

// context returns the context for the step's own work.
func (st *step) context(ctx context.Context) context.Context {
	return stepper.With(ctx, &place{waits{spot{in: st}}})
}

// decide asks the journal about the step.
func (st *step) decide() error {
	st.ex.mu.Lock()
	defer st.ex.mu.Unlock()
	var err error
	if _, open := st.ex.pos.journal.OpenIntent(st.asked.Path); !open && !st.ex.pos.journal.Has(st.asked.Path) {
		if err := st.ex.lines.ended(st.asked.Path); err != nil {
			return err
		}
	}
	if st.decision, st.record, err = st.ex.pos.next(st.asked); err != nil {
		return err
	}
	if st.record == nil && st.ex.levels.outer(st.asked.Path) {
		if st.ex.cleans != nil { // the ended run came no further
			st.ex.life.poison = errReplayed
			return errReplayed
		}
		to := "step " + string(st.ex.levels.own().from)
		if b := st.ex.task.Branch; b != nil {
			to = "branch " + b.Name
		}
		return fmt.Errorf("%w: on its way to %s the code asks for %s %q at step %s, which run %s never recorded",
			run.ErrMismatch, to, st.asked.Kind, st.asked.Name, st.asked.Path, st.ex.levels.owner(st.asked.Path).run)
	}
	if st.ex.life.parked && st.record == nil && !st.asked.Path.Ends() {
		return run.ErrShutdown
	}
	if st.decision == journal.Ambiguous {
		return st.ambiguous()
	}
	if st.ex.task.OnFailure == run.Hold && st.record == nil {
		if try := st.ex.pos.journal.Undecided(st.asked.Path); try != nil {
			return undecided(st, try.Error)
		}
	}
	if st.record != nil {
		st.ex.replayed(st.record)
	}
	return nil
}

// maxShownInput bounds how much of a step's input an error quotes, in bytes.
const maxShownInput = 200

// mismatch adds to the error of a step that the journal does not hold the place of the
// call in the code and, if only the input differs, the input.
func (st *step) mismatch(err error, s session.Session, args []string) error {
	at := caller()
	if at == "" {
		return err
	}
	if st.record == nil || st.record.Kind != st.asked.Kind || st.record.Name != st.asked.Name {
		return fmt.Errorf("%w (at %s)", err, at)
	}
	var given []string
	if !s.Unborn() {
		given = append(given, "session "+s.Ref().String())
	}
	if st.asked.Kind == journal.StepModel {
		given, args = append(given, "with its prompt, tools and settings of the model"), nil
	}
	given = append(given, slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "" })...)
	input := excerpt.Clip(strings.Join(given, ", "), maxShownInput)
	if st.record.Summary != "" {
		input += fmt.Sprintf("; the recorded outcome is %q", excerpt.Clip(st.record.Summary, maxShownInput))
	}
	return fmt.Errorf("%w: at %s the code gives it %s", err, at, input)
}

// ambiguous handles a call that must not happen twice and that a former attempt may have
// started.
func (st *step) ambiguous() error {
	if _, ok := st.ex.pos.resolution(st.asked.Path); ok {
		st.decision = journal.Execute
		return nil // the caller checks the resolution and runs nothing
	}
	intent, _ := st.ex.pos.journal.OpenIntent(st.asked.Path)
	err := st.review(run.CodeReview, "%s %q at step %s was cut off: nobody knows whether it took effect", st.asked.Kind, st.asked.Name, st.asked.Path)
	err.Call = intent.Call
	return err
}

// review returns the error that makes the run wait at the step for an operator's
// decision.
func (st *step) review(code run.Code, format string, args ...any) *reviewError {
	return &reviewError{journal.Review{
		Attempt: st.ex.attempt, Code: code, Name: st.asked.Name, Path: st.asked.Path, Run: st.ex.id, Reason: fmt.Sprintf(format, args...),
	}}
}

// reviewError stops an execution for a review.
type reviewError struct{ journal.Review }

func (e *reviewError) Error() string { return e.Reason }

func (e *reviewError) Unwrap() error { return run.ErrReview }

// end closes the step.
func (st *step) end() {
	st.flight.End()
	st.sc.release()
}

// fail turns an error of a step's own work into the result for its caller: a control
// error poisons the run, any other error is returned unrecorded.
func (st *step) fail(err error) error { return st.ex.failed(err) }

// authored returns an error of an author's function as the step records it. An error that
// run.IsControl reports although this execution need not stop is about another run: only
// its text is kept. session.ErrUnavailable is the error of a tool in another process for
// a call whose effect is unknown; it is returned as is.
func (st *step) authored(err error) error {
	st.ex.mu.Lock()
	defer st.ex.mu.Unlock()
	if !run.IsControl(err) || errors.Is(err, session.ErrUnavailable) || st.ex.life.mayGoOn() != nil {
		return err
	}
	return errors.New(err.Error())
}

// outcome classifies an error of the step's own work: it is a control error when the run
// itself must stop, otherwise an outcome to record.
func (st *step) outcome(err error) (error, bool) {
	if err == nil {
		return nil, true
	}
	st.ex.mu.Lock()
	defer st.ex.mu.Unlock()
	stop := st.ex.life.stopped()
	if stop == nil && run.IsControl(err) {
		stop = err
	}
	if stop != nil {
		return st.ex.life.stop(stop), false
	}
	return err, true
}

// commit records the step: the pending edits of its session, its content, and
// its outcome.
func (st *step) commit(d journal.StepCompleted, content ...session.Event) (journal.Ack, error) {
	d.Path, d.Kind, d.Name, d.Input = st.asked.Path, st.asked.Kind, st.asked.Name, st.asked.Input
	if d.Effect == "" {
		d.Effect = st.asked.Effect
	}
	d.Lost, d.Cost, d.Prices, d.Named, d.Passed, d.Given = st.lost, st.cost, st.prices, st.named, st.passed, st.given
	if st.vectors != nil {
		st.vectors.Record(&d)
		if q := st.ex.rt.Quota; q != nil {
			q.Charge(st.ctx, st.ex.home.Tenant, d.Usage)
		}
	}
	st.flight.SetDoing(live.Records, time.Time{})
	if d.Elapsed == 0 && !st.began.IsZero() {
		d.Elapsed = time.Since(st.began).Milliseconds()
	}
	s := st.s
	if st.beside {
		s = session.Session{}
	}
	return st.ex.log.commitDone(st.ctx, st.log, s, d, content...)
}

// decode sets out to the output of the record.
func (st *step) decode(out any) error { return decode(st.record.StepCompleted, out) }

func (l *sessions) inputDigest(s session.Session, args []string) string {
	h := sha256.New()
	h.Write([]byte(l.recordedAs(s).String()))
	for _, a := range append([]string{s.PendingDigest()}, args...) {
		h.Write([]byte{0})
		h.Write([]byte(a))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// resolution returns the operator's decision about a call that was cut off.
func (st *step) resolution() (journal.Resolved, bool) {
	st.ex.mu.Lock()
	defer st.ex.mu.Unlock()
	return st.ex.pos.resolution(st.asked.Path)
}

// intend records that a call which must not happen twice is about to start.
func (st *step) intend(call string) error {
	for {
		expires := st.ex.rt.Clock.Now().Add(journal.IntentLife)
		intent := journal.StepStarted{
			Attempt: st.ex.attempt, Call: call, Expires: expires.UnixMilli(), Input: st.asked.Input,
			Name: st.asked.Name, Path: st.asked.Path, Run: st.ex.id,
		}
		e, err := journal.NewEvent(journal.KindStepStarted, intent)
		if err != nil {
			return err
		}
		if _, err := st.ex.log.commit(st.ctx, st.log, session.Session{}, st.asked.Path, nil, e); err != nil {
			return err
		}
		stop := st.ex.log.announce(intent)
		if stop != nil {
			return stop
		}
		if !protection.IntentExpiry || st.ex.rt.Clock.Now().Before(expires) {
			return nil
		}
		// The commit took longer than the intent is valid, so the call must not start
		// with it.
	}
}

// lastWord records the outcome of a call with an intent although the run stops, because
// it was cancelled or its time is up: the effect may have taken place. A run that
// continues elsewhere leaves the call open instead, so that it needs review. lastWord
// reports whether it records the outcome.
func (st *step) lastWord(stop error, d journal.StepCompleted) bool {
	if !errors.Is(stop, run.ErrCancelled) && !errors.Is(stop, run.ErrDeadline) {
		return false
	}
	st.beside = true
	_, _ = st.commit(d) // best effort; the caller returns the stop
	return true
}

// evidence records the effects of a call that is left open, or is repeated. It is not the
// record of a step.
func (st *step) evidence(d journal.StepCompleted) {
	d.Path, d.Kind, d.Name, d.Input, d.Value = st.asked.Path, st.asked.Kind, st.asked.Name, st.asked.Input, ""
	d.Run, d.Attempt, d.Revision, d.Elapsed = st.ex.id, st.ex.attempt, st.ex.reg.Revision, time.Since(st.began).Milliseconds()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(st.ctx), finishTimeout)
	defer cancel()
	_, _ = st.ex.log.note(ctx, st.log, journal.KindLate, journal.Late(d)) // best effort; the caller gets the stop
}
