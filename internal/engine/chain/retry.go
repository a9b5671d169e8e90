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

// Retries is the policy of retries for one model. It holds for one step of one attempt, for
// each kind of client, and no client sends a request again by itself, so it bounds what a
// server gets. What is 0 is the default.
type Retries struct {
	// Attempts are the requests that the model gets for one answer.
	Attempts int
	// Pause is before the second, and doubles up to maxPause; a random part of up to Pause
	// is added, so that calls which failed together do not come back together.
	Pause time.Duration
	// Within is how long after the first request of the step the last one may begin.
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
	// maxRetryAfter is the longest wish of a server that is honoured. Beyond it the call
	// fails at once, with the wish in its error.
	maxRetryAfter = 60 * time.Second
)

// orDefault returns the policy with the defaults in it.
func (p Retries) orDefault() Retries {
	return Retries{
		cmp.Or(p.Attempts, defaultAttempts), cmp.Or(p.Pause, defaultPause), cmp.Or(p.Within, defaultWithin),
	}
}

// Tries is how far the tries of a call have come.
type Tries struct {
	try   int       // requests that were sent
	here  int       // of them, to the model that is asked now
	began time.Time // the first
}

// Sent counts a request.
func (r *Tries) Sent() {
	r.try++
	r.here++
}

// What holds where another model can take the place of the one that failed.
const (
	// triesBefore is how many requests it gets, maxWait the longest pause between them.
	triesBefore = 2
	maxWait     = 2 * time.Second
)

// moves reports whether another model is to be asked after a failure. What is wrong with
// the request, or refused for what it says, stays so.
func (r Tries) moves(p Retries, err error) bool {
	switch code := llm.CodeOf(err); code {
	case "", llm.CodeInvalidRequest, llm.CodeRefused:
		return r.here == 0 && code == llm.CodeInvalidRequest // this model cannot do it, see usable
	}
	failed, ok := errors.AsType[*llm.Error](err)
	return !ok || !failed.Retryable() || r.here == 0 || r.here >= min(triesBefore, p.orDefault().Attempts) || failed.RetryAfter > maxWait
}

// pause returns how long to wait before the next try; ok is false if there is none.
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

// last returns the error of a call that is not made again: how often it was made is
// what its reader wants to know.
func (r Tries) last(err error) error {
	failed, ok := errors.AsType[*llm.Error](err)
	if !ok || r.try <= 1 {
		return err
	}
	said := *failed
	said.Message += fmt.Sprintf(" (tried %d times)", r.try)
	return &said
}
