package flow

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/rathcluster/rath/internal/protection"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// DoOption changes how [Do] treats its function.
type DoOption func(*doOptions)

type doOptions struct{ effect tool.Effect }

// Effect says what happens if the function is cut off between its effect and
// the record of it. Without it a function is tool.NonIdempotent: it is
// announced in the log before it starts, and a run that was cut off inside
// waits for a person. tool.Idempotent and tool.ReadOnly functions simply run
// again.
func Effect(e tool.Effect) DoOption { return func(o *doOptions) { o.effect = e } }

// Do runs fn once and records what it returned, value or error; later
// executions of the run get the record. T must survive JSON. What fn gets is for
// its work alone: steps that it tries to make fail with run.ErrNestedStep.
func Do[T any](ctx context.Context, name string, fn func(context.Context) (T, error), opts ...DoOption) (T, error) {
	var zero T
	var o doOptions
	for _, opt := range opts {
		opt(&o)
	}
	st, err := begin(ctx, run.StepDo, name, session.Session{}, false, o.effect.String())
	if err != nil {
		return zero, err
	}
	defer st.end()
	if st.decision == run.Replay {
		return fromRecord[T](st.record)
	}
	d := run.StepCompleted{}
	var value T
	if v, ok := st.resolution(); ok {
		d.Value, d.Summary = v.Value, "resolved: "+v.Reason
		if v.Value != "" {
			if err := json.Unmarshal([]byte(v.Value), &value); err != nil {
				return zero, st.fail(&reviewError{run.Review{
					Attempt: st.ex.attempt, Code: run.CodeReview, Name: name, Path: st.asked.Path, Run: st.ex.id,
					Reason: fmt.Sprintf("the value that resolved step %s is no %T: %v; resolve it again", st.asked.Path, value, err),
				}})
			}
		}
	} else {
		if o.effect == tool.NonIdempotent {
			if err := st.intend(""); err != nil {
				return zero, st.fail(err)
			}
		}
		leave := st.ex.inside(&st.asked)
		value, err = protected(st.ctx, fn)
		leave()
		if err == nil {
			var raw []byte
			if raw, err = json.Marshal(value); err != nil {
				err = fmt.Errorf("flow: step %s (%s) returned a value that JSON cannot hold: %w", st.asked.Path, name, err)
			}
			d.Value = string(raw)
		}
		if err != nil {
			d.Code, d.Error = run.CodeOf(err), clip(err.Error(), 4<<10)
		}
		if failure, ok := st.outcome(err); !ok {
			if o.effect == tool.NonIdempotent {
				st.lastWord(failure, d)
			}
			return zero, failure
		}
	}
	if _, err := st.commit(d); err != nil {
		return zero, err
	}
	return value, d.Code.Err(d.Error)
}

// protected calls fn; a panic is its outcome, like any error.
func protected[T any](ctx context.Context, fn func(context.Context) (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("flow: panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(ctx)
}

// lastWord records what a call that was announced came to although the run
// stops, because it was cancelled or its time is up: the effect may have taken
// place. A run that goes on elsewhere leaves the call open instead, so that a
// person is asked.
func (st *step) lastWord(stop error, d run.StepCompleted) {
	if errors.Is(stop, run.ErrCancelled) || errors.Is(stop, run.ErrDeadline) {
		st.s = session.Session{}
		_, _ = st.commit(d) // the log keeps it; what is returned is the stop
	}
}

func fromRecord[T any](r *run.Step) (T, error) {
	var v T
	if r.Code != "" {
		return v, r.Code.Err(r.Error)
	}
	if r.Value == "" {
		return v, nil
	}
	if err := json.Unmarshal([]byte(r.Value), &v); err != nil {
		return v, fmt.Errorf("%w: step %s recorded a value that is no %T: %w", run.ErrMismatch, r.Path, v, err)
	}
	return v, nil
}

// resolution returns what a person said about a call that was cut off.
func (st *step) resolution() (run.Resolved, bool) {
	st.ex.mu.Lock()
	defer st.ex.mu.Unlock()
	return st.ex.pos.resolution(st.asked.Path)
}

// intend records that a call which must not happen twice is about to start.
func (st *step) intend(call string) error {
	for {
		expires := time.Now().Add(run.IntentLife)
		e, err := run.NewEvent(run.KindIntent, run.StepStarted{
			Attempt: st.ex.attempt, Call: call, Expires: expires.UnixMilli(), Input: st.asked.Input,
			Name: st.asked.Name, Path: st.asked.Path, Run: st.ex.id,
		})
		if err != nil {
			return err
		}
		if _, err := st.ex.commit(st.ctx, st.log, session.Session{}, st.asked.Path, nil, e); err != nil {
			return err
		}
		st.ex.mu.Lock()
		stop := st.ex.life.stopped()
		st.ex.mu.Unlock()
		if stop != nil {
			return stop
		}
		if !protection.IntentExpiry || time.Now().Before(expires) {
			return nil
		}
		// The commit took longer than the intent lives, so nothing may start
		// on it.
	}
}

// Now returns the time of the last recorded step of the run, the same on every
// execution. It needs no step of its own. Inside of a step, in Do's function, a
// tool or a hook, it is what the clock says. Outside of a run it is zero.
func Now(ctx context.Context) time.Time {
	sc, err := scopeOf(ctx, run.StepRequest{Kind: "a time"})
	switch {
	case errors.Is(err, run.ErrNestedStep):
		return time.Now()
	case err != nil:
		return time.Time{}
	}
	sc.ex.mu.Lock()
	defer sc.ex.mu.Unlock()
	if sc.ex.pos.within != nil {
		return time.Now()
	}
	return sc.ex.pos.last
}

// NewID returns an id of 32 hexadecimal digits, the same on every execution of
// the run and different from every other one. Inside of a step, in Do's function,
// a tool or a hook, it is drawn at random: replay does not come there, and what
// the step returns is recorded. Outside of a run it is empty.
func NewID(ctx context.Context) string {
	sc, err := scopeOf(ctx, run.StepRequest{Kind: "an id"})
	switch {
	case errors.Is(err, run.ErrNestedStep):
		return drawID()
	case err != nil:
		return ""
	}
	sc.ex.mu.Lock()
	defer sc.ex.mu.Unlock()
	if sc.ex.pos.within != nil {
		return drawID()
	}
	sc.ids++
	owner := sc.ex.levels.owner(sc.prefix)
	sum := sha256.Sum256([]byte(owner.home.String() + "\x00" + string(owner.run) + "\x00" + string(sc.prefix) + "\x00" + strconv.Itoa(sc.ids)))
	return hex.EncodeToString(sum[:16])
}

// drawID returns the digits of a random UUID, by which package flowtest knows that
// an id may differ from execution to execution.
func drawID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return hex.EncodeToString(id[:])
}
