package engine

import (
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
func (p *place) Do(ctx context.Context, name string, effect tool.Effect, out any, fn func(context.Context) error) error {
	st, err := p.begin(ctx, journal.StepDo, name, session.Session{}, false, effect.String())
	if err != nil {
		return err
	}
	defer st.end()
	st.exact = true
	return st.make(func() error { return st.decode(out) }, func() (d journal.StepCompleted, err error) {
		if v, ok := st.resolution(); ok {
			return st.resolved(v, out)
		}
		if effect == tool.NonIdempotent {
			if err := st.intend(""); err != nil {
				return d, err
			}
		}
		leave := st.ex.inside(&st.asked)
		err = st.authored(protected(st.ctx, fn))
		leave()
		if err == nil {
			var raw []byte
			if raw, err = roundTrip(out); err != nil {
				err = fmt.Errorf("flow: step %s (%s) returned a value that JSON cannot hold: %w", st.asked.Path, name, err)
			}
			d.Value = string(raw)
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
			err = fmt.Errorf("flow: panic: %v\n%s", p, debug.Stack())
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
func (p *place) Now() time.Time {
	if p.in != nil {
		return p.in.ex.rt.Clock.Now()
	}
	ex := p.sc.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.pos.within != nil {
		return ex.rt.Clock.Now()
	}
	return ex.pos.last
}

// NewID is flow.NewID.
func (p *place) NewID() string {
	if p.in != nil {
		return drawID()
	}
	sc := p.sc
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

// drawID returns the digits of a random UUID, by which package flowtest recognises an id
// that may differ between executions.
func drawID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return hex.EncodeToString(id[:])
}
