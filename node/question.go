package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// question is asked by one goroutine at a time, for all callers: a missing answer costs
// one goroutine in total. It is safe for concurrent use.
type question struct {
	ask   func(ctx context.Context) error
	limit time.Duration // for an answer
	fresh time.Duration // how long an answer is reused

	mu   sync.Mutex
	last *answer
	work sync.WaitGroup
}

// answer is an answer that was received, or is awaited.
type answer struct {
	asked time.Time
	done  chan struct{} // closed when err is set
	err   error
	ended time.Time
}

// errSilent reports that there is no answer yet.
var errSilent = errors.New("node: no answer")

// put returns the answer, or errSilent if there is none within the limit. It does not
// repeat a question that is not answered yet.
func (q *question) put(ctx context.Context) error {
	a := q.current()
	limit := time.NewTimer(q.limit)
	defer limit.Stop()
	select {
	case <-a.done:
		return a.err
	case <-limit.C:
		return fmt.Errorf("%w for %v", errSilent, time.Since(a.asked).Round(100*time.Millisecond))
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *question) current() *answer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a := q.last; a != nil {
		select {
		case <-a.done:
			if time.Since(a.ended) < q.fresh {
				return a
			}
		default:
			return a
		}
	}
	a := &answer{asked: time.Now(), done: make(chan struct{})}
	q.last = a
	q.work.Go(func() {
		defer close(a.done)
		ctx, cancel := context.WithTimeout(context.Background(), q.limit)
		defer cancel()
		a.err = q.ask(ctx)
		a.ended = time.Now()
	})
	return a
}

// wait returns when no answer is awaited, or after the limit: a question that hangs
// must not keep a node from ending.
func (q *question) wait() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.work.Wait()
	}()
	limit := time.NewTimer(q.limit)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
	}
}
