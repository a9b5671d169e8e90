package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Do is flow.Do.
func (p *place) Do(ctx context.Context, name string, effect tool.Effect, retry *tool.Retry, out any, fn func(context.Context) error) error {
	policy, err := retry.For(effect)
	if err != nil {
		return fmt.Errorf("flow: step %q: %w", name, err)
	}
	st, err := p.begin(ctx, journal.StepDo, name, session.Session{}, false, effect.String())
	if err != nil {
		return err
	}
	first, t := st, &tries{policy: policy, work: st.asked}
	st.exact, st.tries = true, t
	defer func() { st.flight.End(); first.end() }()
	err = t.load(st)
	for err == nil {
		if err = t.sleep(st); err != nil {
			break
		}
		if t.failed > 0 && st.recorded {
			if st, err = st.again(); err != nil {
				break
			}
		}
		if err := st.do(effect, out, fn); t.pause == 0 || !st.recorded {
			return err
		}
	}
	return st.fail(err)
}

// do makes one try of a function.
func (st *step) do(effect tool.Effect, out any, fn func(context.Context) error) error {
	t := st.tries
	return st.make(func() error { return st.decode(out) }, func() (d journal.StepCompleted, err error) {
		t.start(st)
		if v, ok := st.resolution(); ok {
			return st.resolved(v, out)
		}
		if effect == tool.NonIdempotent {
			if err := st.intend(""); err != nil {
				return d, err
			}
		}
		leave := st.sc.inside(&st.asked)
		late := st.bounded(st.ctx, t.policy.Timeout, func(ctx context.Context) error {
			err = protected(ctx, fn)
			return err
		})
		err = st.authored(cmp.Or(late, err))
		leave()
		if err == nil {
			var raw []byte
			if raw, err = roundTrip(out); err != nil {
				err = tool.Permanent(fmt.Errorf("flow: step %s (%s) returned a value that JSON cannot hold: %w", st.asked.Path, st.asked.Name, err))
			}
			d.Value = string(raw)
		}
		if err != nil {
			t.fails(st, err, &d)
		}
		return d, came(err)
	})
}

// resolved sets out to the operator's value for a call that was cut off.
func (st *step) resolved(v journal.Resolved, out any) (d journal.StepCompleted, err error) {
	d.Value, d.Summary = v.Value, "resolved: "+v.Reason
	if v.Value == "" {
		return d, nil
	}
	if err := json.Unmarshal([]byte(v.Value), out); err != nil {
		return d, st.review(run.CodeReview, "the value that resolved step %s is no %v: %v; resolve it again", st.asked.Path, reflect.TypeOf(out).Elem(), err)
	}
	return d, nil
}

// protected calls fn; a panic is its outcome, like any error.
func protected(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = tool.Permanent(fmt.Errorf("flow: panic: %v\n%s", p, debug.Stack()))
		}
	}()
	return fn(ctx)
}

// decode sets the value that out points to from a record.
func decode(r journal.StepCompleted, out any) error {
	if r.Code != "" {
		return r.Code.Err(r.Error)
	}
	if r.Value == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(r.Value), out); err != nil {
		return fmt.Errorf("%w: step %s recorded a value that is no %v: %w", run.ErrMismatch, r.Path, reflect.TypeOf(out).Elem(), err)
	}
	return nil
}

// Now is flow.Now.
func (p *spot) Now() time.Time {
	if p.in != nil {
		return p.in.ex.rt.Clock.Now()
	}
	ex := p.sc.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if p.sc.within != nil {
		return ex.rt.Clock.Now()
	}
	if l := p.sc.line; l != nil {
		return l.last
	}
	return ex.pos.last
}

// NewID is flow.NewID.
func (p *spot) NewID() string {
	if p.in != nil {
		return drawID()
	}
	sc := p.sc
	sc.ex.mu.Lock()
	defer sc.ex.mu.Unlock()
	if sc.within != nil {
		return drawID()
	}
	sc.ids++
	owner := sc.ex.levels.owner(sc.prefix)
	sum := sha256.Sum256([]byte(owner.home.String() + "\x00" + string(owner.run) + "\x00" + string(sc.prefix) + "\x00" + strconv.Itoa(sc.ids)))
	return hex.EncodeToString(sum[:16])
}

// drawID returns the digits of a random UUID, by which package flowtest recognises an id
// that may differ between executions.
func drawID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return hex.EncodeToString(id[:])
}
