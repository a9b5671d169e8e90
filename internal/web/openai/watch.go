package openai

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/internal/web/problem"
	"github.com/rathcluster/rath/internal/web/turn"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// outcome is the end of a turn: a result, or questions.
type outcome struct {
	run    run.ID
	text   string
	asks   []messages.Wait
	result *messages.Result
	// version is that of the session at the questions.
	version session.Version
}

const (
	// beatEvery is the longest silence of a stream.
	beatEvery = 15 * time.Second
	// turnWithin bounds the wait of a request for its turn; the run goes on.
	turnWithin = time.Hour
)

// update is an update of a run, or the error that ends them.
type update struct {
	client.Update
	err error
}

// watch passes the text of a run to each, and an empty text in each silence, until the run
// ends or asks. An error of each ends it. Without each, the outcome has the recorded text.
func (d *Door) watch(ctx context.Context, c *access.Caller, b *begun, each func(text string) error) (*outcome, error) {
	w := &watch{caller: c, begun: b, fold: turn.Fold{Run: b.run, Late: b.late}, each: each}
	if each == nil {
		w.fold.Late, w.each = true, func(string) error { return nil }
	}
	if b.follower == nil {
		return &outcome{run: b.run, asks: b.asks}, nil
	}
	defer b.free()
	ctx, cancel := context.WithTimeout(ctx, turnWithin)
	updates, done := make(chan update), make(chan struct{})
	go func() {
		defer close(done)
		for u, err := range b.follower.All(ctx) {
			select {
			case updates <- update{u, err}:
			case <-ctx.Done():
			}
		}
	}()
	defer func() { cancel(); <-done }()
	if b.late {
		if o, err := w.look(ctx); o != nil || err != nil {
			return o, err
		}
	}
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		select {
		case u := <-updates:
			if o, err := w.add(ctx, u); o != nil || err != nil {
				return o, err
			}
		case <-beat.C:
			if err := w.each(""); err != nil {
				return nil, err
			}
			if o, err := w.look(ctx); o != nil || err != nil { // its update may be lost
				return o, err
			}
		case <-c.Ended():
			return nil, errAccess
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

var errAccess = &problem.Error{Code: problem.CodeUnauthenticated, Text: "the token was revoked or has expired", Remedy: "ask the operator for another one"}

// watch is the state of a request that follows a run.
type watch struct {
	*begun
	caller *access.Caller
	fold   turn.Fold
	each   func(text string) error
}

// add folds an update.
func (w *watch) add(ctx context.Context, u update) (*outcome, error) {
	if u.err != nil {
		return nil, u.err
	}
	e, ok := w.fold.Add(u.Update)
	switch {
	case !ok:
		return nil, nil
	case e.Text != "":
		return nil, w.each(e.Text)
	case e.End != nil:
		return w.ended(ctx, e.End)
	}
	for _, ask := range e.Asks {
		if ask.Step == w.step && ask.Kind != "decision" {
			return nil, nil // of the time before the answer
		}
	}
	return w.asked(ctx, e.Asks)
}

// look reads whether the run waits for a person.
func (w *watch) look(ctx context.Context) (*outcome, error) {
	info, err := w.caller.Client.Runs.Get(ctx, w.run)
	asks := turn.Asked(info.Waits)
	if err != nil || info.State != run.Waiting || len(asks) == 0 || asks[0].Step == w.step {
		return nil, nil // the updates report an error that lasts
	}
	return w.asked(ctx, asks)
}

// asked ends the turn with questions.
func (w *watch) asked(ctx context.Context, asks []messages.Wait) (*outcome, error) {
	info, err := infoOf(ctx, w.caller, w.run)
	if err != nil {
		return nil, err
	}
	h := &head{run: w.run, session: info.Session, info: info, after: w.after}
	text, err := h.read(ctx, w.caller)
	if err == nil {
		err = w.finish(text)
	}
	return &outcome{run: w.run, text: w.fold.Sent(), asks: asks, version: h.now}, err
}

// ended ends the turn with a result.
func (w *watch) ended(ctx context.Context, r *messages.Result) (*outcome, error) {
	o := &outcome{run: w.run, result: r}
	if r.Version > 0 && !w.fold.Complete(r) {
		info, err := infoOf(ctx, w.caller, w.run)
		if err != nil {
			return nil, err
		}
		text, err := (&head{run: w.run, session: r.Session, version: r.Version, info: info, after: w.after}).read(ctx, w.caller)
		if err != nil && !errors.Is(err, session.ErrNotFound) {
			return nil, err
		}
		if err := w.finish(text); err != nil {
			return nil, err
		}
	}
	o.text = w.fold.Sent()
	return o, nil
}

func (w *watch) finish(text string) error {
	for _, shown := range w.shown {
		if rest, ok := strings.CutPrefix(text, shown); ok {
			text = strings.TrimPrefix(rest, turn.Separator)
			break
		}
	}
	if rest := w.fold.Finish(text); rest != "" {
		return w.each(rest)
	}
	return nil
}
