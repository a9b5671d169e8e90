package chain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rathcluster/rath/llm"
)

// Retries is the policy of retries for one model. It applies to one step of one attempt,
// for each kind of client, and no client retries by itself, so it bounds the requests to
// a server. A zero field is its default.
type Retries struct {
	// Attempts is the maximum number of requests to the model for one answer.
	Attempts int
	// Pause is the pause before the second request; it doubles up to maxPause. A random
	// part of up to Pause is added, so that calls that failed together are not retried
	// together.
	Pause time.Duration
	// Within is the time after the first request of the step in which the last one may
	// begin.
	Within time.Duration
}

// The defaults of Retries.
const (
	defaultAttempts = 4
	defaultPause    = 500 * time.Millisecond
	defaultWithin   = 30 * time.Minute
)

const (
	maxPause = 30 * time.Second
	// maxRetryAfter is the longest delay a server may request. Beyond it the call fails
	// at once, with that delay in its error.
	maxRetryAfter = 60 * time.Second
)

// orDefault returns the policy with defaults for zero fields.
func (p Retries) orDefault() Retries {
	return Retries{
		cmp.Or(p.Attempts, defaultAttempts), cmp.Or(p.Pause, defaultPause), cmp.Or(p.Within, defaultWithin),
	}
}

// Tries counts the requests of a call.
type Tries struct {
	try   int       // requests that were sent
	here  int       // of them, to the current model
	began time.Time // the first
}

// Sent counts a request.
func (r *Tries) Sent() {
	r.try++
	r.here++
}

// Limits that apply if another model can replace a failing one.
const (
	// triesBefore is the maximum number of requests to the first, maxWait the longest
	// pause between them.
	triesBefore = 2
	maxWait     = 2 * time.Second
)

// moves reports whether to ask another model after a failure. An invalid request, or one
// refused for its content, fails at every model.
func (r Tries) moves(p Retries, err error) bool {
	switch code := llm.CodeOf(err); code {
	case "", llm.CodeInvalidRequest, llm.CodeRefused:
		return r.here == 0 && code == llm.CodeInvalidRequest // this model cannot do it, see usable
	}
	failed, ok := errors.AsType[*llm.Error](err)
	return !ok || !failed.Retryable() || r.here == 0 || r.here >= min(triesBefore, p.orDefault().Attempts) || failed.RetryAfter > maxWait
}

// pause returns the time to wait before the next try; ok is false if there is none.
func (r Tries) pause(ctx context.Context, p Retries, err error) (pause time.Duration, ok bool) {
	p = p.orDefault()
	failed, isModel := errors.AsType[*llm.Error](err)
	if !isModel || !failed.Retryable() || r.here == 0 || r.here >= p.Attempts || ctx.Err() != nil {
		return 0, false
	}
	pause = min(p.Pause<<(r.here-1), max(p.Pause, maxPause)) + rand.N(p.Pause)
	if failed.RetryAfter > 0 {
		pause = failed.RetryAfter
	}
	now := time.Now()
	if failed.RetryAfter > maxRetryAfter || now.Add(pause).Sub(r.began) > p.Within {
		return 0, false
	}
	end, limited := ctx.Deadline()
	return pause, !limited || now.Add(pause).Before(end)
}

// last returns the error of a call that is not retried, with the number of its tries.
func (r Tries) last(err error) error {
	failed, ok := errors.AsType[*llm.Error](err)
	if !ok || r.try <= 1 {
		return err
	}
	said := *failed
	said.Message += fmt.Sprintf(" (tried %d times)", r.try)
	return &said
}
