package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// lookEvery is the interval at which a follower that receives nothing asks for the
	// result: live messages may be lost.
	lookEvery = 5 * time.Second
	// lookAgain is the pause after a query that failed.
	lookAgain = 500 * time.Millisecond
	// lastWords is how long a follower of events waits, after the result, for the event
	// of the end, which is sent separately.
	lastWords = 250 * time.Millisecond
)

// Update is one message about a run. One field is set.
type Update struct {
	Delta  *messages.Delta  // provisional
	Event  *messages.Record // committed
	Result *messages.Result // the last one
}

// Follower follows a run from the moment of its creation.
type Follower struct {
	c    *Client
	id   run.ID
	w    *requests.Watch
	only bool // the subscription covers only results
	own  bool // it submitted the task itself: an older result may be another task's
	// task is the submitted task whose id the caller chose, and workflow its workflow.
	task     *messages.Task
	workflow string
}

// Follow follows a run, which need not be submitted yet. Close the Follower, or read
// All to the end.
func (c *Client) Follow(ctx context.Context, id run.ID) (*Follower, error) {
	return c.follow(ctx, id, "*")
}

func (c *Client) follow(ctx context.Context, id run.ID, on string) (*Follower, error) {
	if err := session.ValidID("run", string(id)); err != nil {
		return nil, err
	}
	w, err := c.requests.Watch(ctx, messages.RunSubject(c.tenant, id, on))
	if err != nil {
		return nil, err
	}
	return &Follower{c: c, id: id, w: w, only: on == messages.OnResult}, nil
}

// Close ends the subscription.
func (f *Follower) Close() { f.w.Close() }

// All yields the updates of the run, ends with its result, and closes the Follower.
// Deltas and events may be lost with the connection, but the result is not; Tail reads
// the lost events. An error ends the sequence: ctx's error, run.ErrUnknownRun for a run
// without a stored task that this client did not submit, run.ErrKeyReused for a task
// whose id names another one, or run.ErrPruned for a run whose result was removed with
// its log.
func (f *Follower) All(ctx context.Context) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		defer f.Close()
		if !f.own {
			if r, err := f.c.stored(ctx, f.id); r != nil || err != nil {
				yield(Update{Result: r}, err)
				return
			}
		}
		for ctx.Err() == nil {
			u, r, err := f.next(ctx, lookEvery)
			switch {
			case r != nil:
				if err := f.another(ctx); err != nil {
					yield(Update{}, err)
					return
				}
				f.finish(ctx, r, yield)
				return
			case err != nil:
				yield(Update{}, err)
				return
			case u != (Update{}) && !yield(u, nil):
				return
			}
		}
		yield(Update{}, ctx.Err())
	}
}

// next waits for an update. It queries the result after the timeout, or when messages
// may have been lost. It returns the result separately.
func (f *Follower) next(ctx context.Context, timeout time.Duration) (u Update, r *messages.Result, err error) {
	waiting, cancel := context.WithTimeout(ctx, timeout)
	live, err := f.w.Next(waiting)
	cancel()
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded), err == nil && live.Gap:
		r, err = f.c.stored(ctx, f.id)
		return u, r, err
	case err != nil:
		return u, nil, err
	}
	u, err = f.read(live)
	if u.Result != nil {
		return Update{}, u.Result, nil
	}
	return u, nil, err
}

// read decodes a message. It skips a message that does not decode: a later release or
// another program sent it. It also skips a message about another run: a user who
// queries a node chooses the subject of the answer, and the servers allow a subject of
// this run.
func (f *Follower) read(live requests.Live) (Update, error) {
	_, _, on, _ := messages.ParseRunSubject(live.Subject)
	switch on {
	case messages.OnDelta:
		if d, err := messages.DecodeDelta(live.Data); err == nil && d.Run == f.id {
			return Update{Delta: &d}, nil
		}
	case messages.OnEvent:
		e, err := messages.DecodeEvent(live.Data)
		if err != nil || e.Run != f.id {
			break
		}
		if e.Kind == messages.KindRefused && (e.Code == run.CodeKeyReused || e.Code == run.CodePruned) {
			return Update{}, e.Code.Err(e.Reason)
		}
		return Update{Event: &e}, nil
	case messages.OnResult:
		if r, err := messages.DecodeResult(live.Data); err == nil && r.Run == f.id {
			return Update{Result: &r}, nil
		}
	}
	return Update{}, nil
}

// finish yields the events that arrive after the result, and then the result.
func (f *Follower) finish(ctx context.Context, r *messages.Result, yield func(Update, error) bool) {
	words, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	for r.Attempt > 0 && !f.only { // a rejected task has no further events
		live, err := f.w.Next(words)
		if err != nil || live.Gap {
			break
		}
		u, err := f.read(live)
		if err != nil || u.Event == nil {
			continue
		}
		if !yield(u, nil) {
			return
		}
		if u.Event.Kind == messages.KindEnded && u.Event.Home == "" {
			break
		}
	}
	yield(Update{Result: r}, nil)
}

// another returns run.ErrKeyReused if the result under the id of the submitted task
// belongs to another task. In that case no node has accepted this task yet, or its
// rejection was not received.
func (f *Follower) another(ctx context.Context) error {
	for f.task != nil {
		known, err := f.c.Known(ctx, f.workflow, []messages.Task{*f.task})
		switch {
		case err == nil && errors.Is(known[0], run.ErrKeyReused):
			return known[0]
		case err == nil, ctx.Err() != nil, errors.Is(err, ErrNoAnswer), !passes(err):
			return ctx.Err()
		}
		if err := f.c.again(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stored queries the result: nil if there is none yet. It retries when no node answers,
// because the run continues without this client.
func (c *Client) stored(ctx context.Context, id run.ID) (*messages.Result, error) {
	for again := false; ; {
		r, err := c.Runs.Result(ctx, id)
		if errors.Is(err, run.ErrUnknownRun) && !c.mine(id) {
			// A node may accept its task later, or may have accepted it since.
			if waits, notKnown := c.Runs.Waits(ctx, id); waits || notKnown != nil && passes(notKnown) {
				return nil, nil
			}
			if !again {
				again = true
				continue
			}
		}
		switch {
		case err == nil:
			return &r, nil
		case errors.Is(err, run.ErrState):
			return nil, nil
		case errors.Is(err, run.ErrUnknownRun) && c.mine(id):
			return nil, nil // not stored yet
		case errors.Is(err, session.ErrArchived) && !errors.Is(err, run.ErrPruned) && c.mine(id):
			return nil, nil // about to be rejected
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, ErrNoAnswer) && c.mine(id):
			return nil, nil // no node yet, the task waits
		case !passes(err):
			return nil, err
		}
		if err := c.again(ctx); err != nil {
			return nil, err
		}
	}
}

// passes reports whether an error may be temporary.
func passes(err error) bool {
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrNoAnswer) || errors.Is(err, run.ErrBusy) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, session.ErrUnavailable)
}

// Wait returns the outcome of a run once it has ended, even long ago. The error is an
// error of waiting; the run's own error is Result.Err.
func (c *Client) Wait(ctx context.Context, id run.ID) (messages.Result, error) {
	f, err := c.follow(ctx, id, messages.OnResult)
	if err != nil {
		return messages.Result{}, fmt.Errorf("wait for run %s: %w", id, err)
	}
	return f.wait(ctx, nil)
}

func (f *Follower) wait(ctx context.Context, each func(Update)) (messages.Result, error) {
	for u, err := range f.All(ctx) {
		switch {
		case err != nil:
			return messages.Result{}, fmt.Errorf("wait for run %s: %w", f.id, err)
		case u.Result != nil:
			return *u.Result, nil
		case each != nil:
			each(u)
		}
	}
	return messages.Result{}, fmt.Errorf("wait for run %s: %w", f.id, ctx.Err())
}

// Start submits a task and follows its run from before the submission, so that the
// follower misses no update and All yields run.ErrKeyReused for a reused id. Close the
// Follower, or read All to the end.
func (c *Client) Start(ctx context.Context, workflow string, t messages.Task) (*Follower, error) {
	drawn := t.ID == ""
	if drawn {
		t.ID = NewID()
	}
	f, err := c.Follow(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	if f.own = true; !drawn {
		f.task, f.workflow = &t, workflow
	}
	if _, err := c.Submit(ctx, workflow, t); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Do submits a task and waits for its end. It calls each, if not nil, with every update
// before the result, on the calling goroutine. run.ErrKeyReused means that the id names
// another task.
func (c *Client) Do(ctx context.Context, workflow string, t messages.Task, each func(Update)) (messages.Result, error) {
	f, err := c.Start(ctx, workflow, t)
	if err != nil {
		return messages.Result{}, err
	}
	return f.wait(ctx, each)
}

// again pauses before a retry.
func (c *Client) again(ctx context.Context) error {
	conn.Pause(ctx, lookAgain)
	return ctx.Err()
}
