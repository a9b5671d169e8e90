package actors

import (
	"context"
	"fmt"
)

// greeting goes to the supervisor and back.
type greeting struct{ reply chan struct{} }

// IgnoreDeadLetterLogging: a System that has ended is no news.
func (*greeting) IgnoreDeadLetterLogging() {}

// Answering returns nil when the System is able to activate sessions and to
// count its runs, or has ended in order; it returns ctx's error when it is
// stuck. It neither asks the log nor anything else outside of this process, so
// that nothing but a fault in this process makes it fail. The call itself may
// hang in a System that is stuck: make it where that does no harm.
func (s *System) Answering(ctx context.Context) error {
	m := &greeting{reply: make(chan struct{}, 1)}
	s.protoactor.Root.Send(s.top, m)
	select {
	case <-m.reply:
	case <-s.stopped:
	case <-ctx.Done():
		return fmt.Errorf("actors: the supervisor of all sessions does not answer: %w", context.Cause(ctx))
	}
	s.Running()
	return nil
}
