package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rathcluster/rath/internal/nats/requests"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	// lookEvery is how often a follower that receives nothing asks for the
	// result: what is published live may be lost.
	lookEvery = 5 * time.Second
	// lookAgain is the pause after a question that could not be answered.
	lookAgain = 500 * time.Millisecond
	// lastWords is how long a follower of events waits, after the result, for the
	// event of the end, which takes another way.
	lastWords = 250 * time.Millisecond
)

// Update is one message about a run. One field is set.
type Update struct {
	Delta  *messages.Delta  // provisional
	Event  *messages.Record // committed
	Result *messages.Result // the last one
}

// Follower watches a run from the moment it was made.
type Follower struct {
	c    *Client
	id   run.ID
	w    *requests.Watch
	only bool // only results are subscribed to
	own  bool // it submitted the task itself: an older result may be another task's
	// task is what it submitted under an id that it was given, for a workflow.
	task     *messages.Task
	workflow string
}

// Follow watches a run, which need not be submitted yet. Close the Follower,
// or read All to the end.
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

// Close ends the watching.
func (f *Follower) Close() { f.w.Close() }

// All yields the updates of the run, ends with its result, and closes the
// Follower. Deltas and events may be lost with the connection, the result is
// not; Tail reads the events that were lost. An error ends the sequence:
// ctx's, run.ErrUnknownRun for a run of which no task is stored and that this client did not
// submit, run.ErrKeyReused for a task whose id names another one, run.ErrPruned for a run
// whose result was removed with its log.
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

// next waits for an update. It asks for the result after the timeout, or when
// messages may have been lost. The result is returned apart.
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

// read decodes a message. One that does not decode is skipped: a later release or
// another program sent it. So is one that tells of another run: a user who asks a node
// something names the subject of the answer, and servers let that be one of this run's.
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

// finish yields the events that come after the result, and then the result.
func (f *Follower) finish(ctx context.Context, r *messages.Result, yield func(Update, error) bool) {
	words, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	for r.Attempt > 0 && !f.only { // a refused task has no more to say
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

// another is run.ErrKeyReused if the result under the id of the task that was submitted
// is another task's: no node has taken this one yet, or what a node told of its refusal
// was not heard.
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

// stored asks for the result: nil if there is none yet. It asks again when no node
// answers, because the run goes on without this client.
func (c *Client) stored(ctx context.Context, id run.ID) (*messages.Result, error) {
	for again := false; ; {
		r, err := c.Result(ctx, id)
		if errors.Is(err, run.ErrUnknownRun) && !c.mine(id) {
			// Its task may wait to be taken, or was taken since.
			if waits, notKnown := c.TaskWaits(ctx, id); waits || notKnown != nil && passes(notKnown) {
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
			return nil, nil // on its way
		case errors.Is(err, session.ErrArchived) && !errors.Is(err, run.ErrPruned) && c.mine(id):
			return nil, nil // it is about to be refused
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

// passes reports whether an error may pass by itself.
func passes(err error) bool {
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrNoAnswer) || errors.Is(err, run.ErrBusy) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, session.ErrUnavailable)
}

// Wait returns how a run ended, as soon as it has; also long after. The error
// is one of waiting: how the run ended is Result.Err.
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

// Start submits a task and watches its run from before it is submitted, so
// that nothing of it is missed and All yields run.ErrKeyReused for a reused id.
// Close the Follower, or read All to the end.
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

// Do submits a task and waits for its end. It calls each, if not nil, with every
// update before the result, in the caller's goroutine. run.ErrKeyReused means that
// the id names another task.
func (c *Client) Do(ctx context.Context, workflow string, t messages.Task, each func(Update)) (messages.Result, error) {
	f, err := c.Start(ctx, workflow, t)
	if err != nil {
		return messages.Result{}, err
	}
	return f.wait(ctx, each)
}
