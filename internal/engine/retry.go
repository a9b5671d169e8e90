package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rathcluster/rath/llm"
)

// The policy of retries. It holds for one step of one attempt, for each kind of client, and
// no client sends a request again by itself, so it bounds what a server gets.
const (
	// maxTries is how many requests one model gets for one answer.
	maxTries = 4
	// firstPause is the pause before the second, which doubles up to maxPause; a random
	// part of up to firstPause is added, so that calls which failed together do not
	// come back together.
	firstPause = 500 * time.Millisecond
	maxPause   = 30 * time.Second
	// maxRetryAfter is the longest wish of a server that is honoured. Beyond it the call
	// fails at once, with the wish in its error.
	maxRetryAfter = 60 * time.Second
	// retryWithin is how long after the first request the last one may begin.
	retryWithin = 30 * time.Minute
)

// retry is how far the tries of a call have come.
type retry struct {
	try   int       // requests that were sent
	here  int       // of them, to the model that is asked now
	began time.Time // the first
}

// What holds where another model can take the place of the one that failed.
const (
	// triesBefore is how many requests it gets, maxWait the longest pause between them.
	triesBefore = 2
	maxWait     = 2 * time.Second
)

// moves reports whether another model is to be asked after a failure. What is wrong with
// the request, or refused for what it says, stays so.
func (r retry) moves(err error) bool {
	switch code := llm.CodeOf(err); code {
	case "", llm.CodeInvalidRequest, llm.CodeRefused:
		return r.here == 0 && code == llm.CodeInvalidRequest // this model cannot do it, see usable
	}
	failed, ok := errors.AsType[*llm.Error](err)
	return !ok || !failed.Retryable() || r.here == 0 || r.here >= triesBefore || failed.RetryAfter > maxWait
}

// pause returns how long to wait before the next try; ok is false if there is none.
func (r retry) pause(ctx context.Context, err error) (pause time.Duration, ok bool) {
	failed, isModel := errors.AsType[*llm.Error](err)
	if !isModel || !failed.Retryable() || r.here == 0 || r.here >= maxTries || ctx.Err() != nil {
		return 0, false
	}
	pause = min(firstPause<<(r.here-1), maxPause) + rand.N(firstPause)
	if failed.RetryAfter > 0 {
		pause = failed.RetryAfter
	}
	now := time.Now()
	if failed.RetryAfter > maxRetryAfter || now.Add(pause).Sub(r.began) > retryWithin {
		return 0, false
	}
	end, limited := ctx.Deadline()
	return pause, !limited || now.Add(pause).Before(end)
}

// last returns the error of a call that is not made again: how often it was made is
// what its reader wants to know.
func (r retry) last(err error) error {
	failed, ok := errors.AsType[*llm.Error](err)
	if !ok || r.try <= 1 {
		return err
	}
	said := *failed
	said.Message += fmt.Sprintf(" (tried %d times)", r.try)
	return &said
}
