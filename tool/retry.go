package tool

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Retry is the policy for repeating a step's work after an error. A zero field is its
// default; a nil *Retry has all defaults.
//
// A try that failed is recorded, so a crash does not start the count again: the run
// resumes with the next try. A try that a crash cut off has no outcome and is repeated
// under its own number, as its Effect permits. A pause of more than five seconds is a
// recorded wait of the run, which holds no slot and no sandbox.
type Retry struct {
	// Times is the largest number of tries, with the first one: 3 by default, 1 for
	// NonIdempotent work; at most MaxTries.
	Times int
	// First is the pause after the first try: a second by default. Each later pause is
	// Factor times the previous one, 2 by default, and at most Most: a minute by default,
	// and never more than a day.
	First  time.Duration
	Factor float64
	Most   time.Duration
	// Total is the time after the start of the first try in which the last try may start:
	// a day by default, at most 30.
	Total time.Duration
	// Timeout bounds a try by the time since its start or its last progress, see
	// Call.Progress and flow.Progress. The context of the try then ends, and the try fails
	// with context.DeadlineExceeded. Zero is no bound.
	Timeout time.Duration
	// If selects the errors after which another try can help; nil selects all. After
	// a panic or a [Permanent] error there is no other try. NonIdempotent work with more
	// than one try must have an If: it selects the errors that prove that the work had no
	// effect.
	If func(error) bool
}

// The bounds of a policy.
const (
	MaxTries = 1000
	maxPause = 24 * time.Hour
	maxTotal = 30 * 24 * time.Hour
)

// For returns the policy with its defaults for work of an effect. It returns an error for
// a policy without an end or with a meaningless field.
func (r *Retry) For(e Effect) (Retry, error) {
	if r == nil {
		r = &Retry{}
	}
	times := 3
	if e == NonIdempotent {
		times = 1
	}
	p := Retry{
		Times: cmp.Or(r.Times, times), First: cmp.Or(r.First, time.Second), Factor: cmp.Or(r.Factor, 2), Total: cmp.Or(r.Total, 24*time.Hour),
		Timeout: r.Timeout, If: r.If,
	}
	p.Most = cmp.Or(r.Most, max(p.First, time.Minute))
	switch {
	case p.Times < 1 || p.Times > MaxTries:
		return p, fmt.Errorf("retry policy: %d tries: set Times to 1 to %d; for a longer outage, make Most longer", p.Times, MaxTries)
	case p.First < 0 || p.Most < p.First || p.Most > maxPause:
		return p, fmt.Errorf("retry policy: pauses from %v to %v: set First and Most, the shorter one first, to at most %v", p.First, p.Most, maxPause)
	case !(p.Factor >= 1 && p.Factor <= 100):
		return p, fmt.Errorf("retry policy: factor %v: set Factor to 1 to 100; 1 is for equal pauses", p.Factor)
	case p.Total < 0 || p.Total > maxTotal:
		return p, fmt.Errorf("retry policy: tries for %v in total: set Total to at most %v", p.Total, maxTotal)
	case p.Timeout < 0:
		return p, fmt.Errorf("retry policy: a try of %v: set Timeout to the time without progress after which a try ends, or to 0 for no bound", p.Timeout)
	case e == NonIdempotent && p.Times > 1 && p.If == nil:
		return p, fmt.Errorf("retry policy: %d tries of work that must not happen twice: declare another effect if it may be repeated, or set If to select the errors that prove that it did not happen", p.Times)
	}
	return p, nil
}

// Next returns the pause before the next try, after a number of failed tries; ok is false
// if there is none. err is the error of the last try, and spent the time since the start
// of the first one.
func (r Retry) Next(err error, failed int, spent time.Duration) (pause time.Duration, ok bool) {
	_, answers := errors.AsType[*Failure](err)
	_, panics := errors.AsType[*panicError](err)
	if failed >= r.Times || answers || IsPermanent(err) || panics || r.If != nil && !r.If(err) {
		return 0, false
	}
	next := float64(r.First)
	for range failed - 1 {
		next = min(next*r.Factor, float64(r.Most))
	}
	pause = max(time.Duration(next), time.Millisecond)
	return pause, spent+pause <= r.Total
}

// Permanent returns err as an error after which the work is not tried again, whatever its
// [Retry]. It has the text of err and wraps it; of nil it is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

// IsPermanent reports whether [Permanent] marked an error, or one that it wraps.
func IsPermanent(err error) bool {
	_, ok := errors.AsType[*permanent](err)
	return ok
}

type permanent struct{ err error }

func (p *permanent) Error() string { return p.err.Error() }
func (p *permanent) Unwrap() error { return p.err }
