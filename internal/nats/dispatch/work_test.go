package dispatch

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// publishRun puts a run into the queue of tasks, for pullRuns.
func publishRun(ctx context.Context, c *Dispatch, t journal.Task) error {
	body := translate.WorkOf(journal.Work{Task: &t})
	data, err := body.Encode()
	if err == nil {
		_, err = c.messages.Publish(ctx, &nats.Msg{Subject: messages.TaskSubject(t.Session.Tenant, messages.UserAnonymous, string(t.ID)), Data: data})
	}
	return err
}

// pullRuns handles the runs that publishRun published, at most most concurrently, until ctx
// ends.
func pullRuns(ctx context.Context, c *Dispatch, most int, accept func(ctx context.Context, t journal.Task) error) error {
	p := &puller{c: c, PullQueue: streams.TasksQueue(), most: most, handle: func(ctx context.Context, m jsMsg) disposition {
		w, err := translate.DecodeWork(m.Data())
		if err == nil {
			err = accept(ctx, *w.Task)
		}
		switch {
		case err == nil:
			return ack
		case errors.Is(err, run.ErrBusy), errors.Is(err, run.ErrShutdown):
			return nak
		}
		return nakDelayed
	}}
	return p.run(ctx)
}

// takeAll is a node that accepts every dispatched run, and executes none. It returns a
// function that counts the runs.
func takeAll(t testing.TB, c *Dispatch) (taken func() int) {
	t.Helper()
	var mu sync.Mutex
	runs := map[run.ID]int{}
	stop := natstest.Background(t, func(ctx context.Context) error {
		return c.ServeRuns(ctx, &Host{
			Incarnation: "taker", Pool: DefaultPool, Free: func() int { return 1000 }, Freed: make(chan struct{}),
			Take: func(_ context.Context, r journal.Task) (journal.Answer, error) {
				mu.Lock()
				defer mu.Unlock()
				runs[r.ID]++
				return journal.AnswerCommitted, nil
			},
		})
	})
	t.Cleanup(stop)
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(runs)
	}
}
