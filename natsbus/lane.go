package natsbus

import (
	"context"
	"sync"
)

// lane carries out pieces of work beside whoever finds them, so many at once and
// in their order otherwise.
type lane struct {
	room  chan struct{} // a token for each piece that was taken
	slots chan struct{} // and for each that is being carried out
	work  sync.WaitGroup
}

// newLane returns a lane that carries out so many pieces at once while others
// wait.
func newLane(atOnce, waiting int) *lane {
	return &lane{room: make(chan struct{}, atOnce+waiting), slots: make(chan struct{}, atOnce)}
}

// take takes a piece, once there is room for it, and does not wait until it is
// done. It returns the error of ctx, and has not taken the piece, if ctx ends
// before. A piece that had to wait is told if its turn comes after that.
func (l *lane) take(ctx context.Context, do func(late bool)) error {
	select {
	case l.room <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.work.Go(func() {
		defer func() { <-l.room }()
		late := false
		select {
		case l.slots <- struct{}{}:
		default:
			l.slots <- struct{}{}
			late = ctx.Err() != nil
		}
		defer func() { <-l.slots }()
		do(late)
	})
	return nil
}

// wait returns when all that was taken is done.
func (l *lane) wait() { l.work.Wait() }
