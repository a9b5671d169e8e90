package flow

import (
	"context"
	"errors"

	"github.com/rathcluster/rath/session"
)

// MaxLoopState is the maximum size of the state of a [Loop], as JSON, in bytes, and
// MaxLoopEvents the maximum number of names and keys of events that it awaits.
const (
	MaxLoopState  = 64 << 10
	MaxLoopEvents = 256
)

// Loop calls body until it returns false or an error, for work without a foreseeable end,
// such as a conversation:
//
//	var c struct{ Turns int }
//	s, err := flow.Loop(ctx, "chat", s, &c, func(ctx context.Context, s session.Session) (session.Session, bool, error) {
//		s, err := flow.Listen(ctx, s, nil)
//		if err != nil {
//			return s, false, err
//		}
//		c.Turns++
//		s, err = agent.Forward(ctx, s)
//		return s, !strings.Contains(s.Text(), "goodbye"), err
//	})
//
// The end of each iteration is recorded with s and state. A later execution takes them over
// from the last one that ended, and runs only the iteration after it: a wait costs the same
// in the 10,000th iteration as in the 10th. The steps of iteration 7 of the loop at step 3
// are 3.7.0, 3.7.1 and so on, and its end is step 3.7.
//
// Everything that one iteration leaves to the next is in s and state. The variables around
// body have in a later execution the values from before the loop, so body must not use them
// for anything else; flowtest finds a body that does. state points to a value that JSON can
// hold in at most [MaxLoopState]; it may have the [session.Ref] of other sessions, for
// [ReadSession]. s is the session that Forward got, or session.Session{} for a loop without
// one: body gets it, and returns its newest value. Loop returns the last one, and the error
// of body.
//
// In body, ctx makes the steps. Sessions from outside of the iteration, except for s, can
// be read, and extending one makes a fork. Sessions that the iteration made and left open
// end with it, as at the end of the run, and so do the branches that it did not merge. Its
// Start can be waited for in the iteration; the run itself goes on. A [ChangeVersion] in
// body is for the iteration: call it before Loop for a version that all iterations have. A
// Defer fails. Each iteration counts as a step of the budget, besides those of its own.
func Loop[S any](ctx context.Context, name string, s session.Session, state *S, body func(ctx context.Context, s session.Session) (next session.Session, more bool, err error)) (session.Session, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return s, err
	}
	if state == nil {
		return s, errors.New("flow: a Loop with a nil state: give it a pointer to a variable, such as new(struct{})")
	}
	return e.Loop(ctx, name, s, state, body)
}
