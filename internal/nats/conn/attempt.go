package conn

import (
	"context"
	"sync/atomic"
	"time"
)

// attempt is one attempt of a request, and its context. The context ends with the caller's,
// after RequestTimeout, when the connection is lost, and when the server rejects the
// subject. Each commit makes a few requests, almost all of which are answered, so attempts
// are reused.
type attempt struct {
	context.Context // of its caller
	asking

	ended atomic.Pointer[error] // set before done is closed
	done  chan struct{}
	timer *time.Timer
	stop  func() bool // detaches from the caller's context; nil if that never ends
}

// beginAttempt returns an attempt of a caller whose context has not ended.
func (c *Conn) beginAttempt(ctx context.Context, subject string) *attempt {
	a, ok := c.attempts.Get().(*attempt)
	if !ok {
		a = &attempt{done: make(chan struct{})}
		a.cancel = func() { a.over(context.Canceled) }
		a.timer = time.AfterFunc(RequestTimeout, func() { a.over(context.DeadlineExceeded) })
	} else {
		a.timer.Reset(RequestTimeout)
	}
	a.Context, a.subject, a.linked = ctx, subject, true
	if ctx.Done() != nil {
		a.stop = context.AfterFunc(ctx, func() { a.over(ctx.Err()) })
	}
	c.refusals.note(&a.asking)
	return a
}

// endAttempt ends an attempt with the result err, and returns the reason it was ended
// early, if any.
func (c *Conn) endAttempt(a *attempt, err error) error {
	err = c.refusals.leave(&a.asking, err)
	again := a.timer.Stop()
	if a.stop != nil {
		again = a.stop() && again
	}
	if !again || a.ended.Load() != nil {
		return err // the goroutine that ended it may still read it
	}
	a.Context, a.stop = nil, nil
	c.attempts.Put(a)
	return err
}

// over ends the attempt.
func (a *attempt) over(err error) {
	if a.ended.CompareAndSwap(nil, &err) {
		close(a.done)
	}
}

// Done and Err implement context.Context.
func (a *attempt) Done() <-chan struct{} { return a.done }

func (a *attempt) Err() error {
	if err := a.ended.Load(); err != nil {
		return *err
	}
	return nil
}
