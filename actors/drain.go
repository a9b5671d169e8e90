package actors

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rathcluster/rath/run"
)

const (
	// cutOff bounds how long everything may take to end once executions were
	// cut off.
	cutOff = time.Minute
	// claimLast is the share of that for claims on their way: when it has passed, their
	// waits are canceled.
	claimLast = 5 * time.Second
)

// Run waits until ctx ends and then drains, for at most Options.Drain. It
// returns when everything that the System started has ended.
func (s *System) Run(ctx context.Context) error {
	<-ctx.Done()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Drain)
	defer cancel()
	return s.Drain(bounded)
}

// Drain stops the System: it accepts no more tasks, lets the runs continue until ctx
// ends, cuts off the remaining ones (they record that they were released, and any node
// may claim them), saves and stops all sessions, and returns when everything that the
// System started has ended. A second call waits for the same end.
//
// Drain fails, and leaves goroutines behind, only if some of them do not end within a
// minute of being cut off: a run whose code ignores its context, or a log that does.
func (s *System) Drain(ctx context.Context) error {
	s.drain.once.Do(func() {
		close(s.drain.begun)
		s.executions.close()
		go func() {
			defer close(s.drain.done)
			s.drain.err = s.shutDown(ctx)
		}()
	})
	<-s.drain.done
	return s.drain.err
}

// Park is a Drain that lets steps end and not whole runs: each run is released
// before its next step. ctx bounds how long the steps may take.
func (s *System) Park(ctx context.Context) error {
	select {
	case <-s.drain.begun: // the System stops already, or has ended
	default:
		s.protoactor.Root.Send(s.top, &park{})
	}
	return s.Drain(ctx)
}

func (s *System) shutDown(ctx context.Context) error {
	err := s.executions.wait(ctx)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutOff)
	defer cancel()
	if err != nil {
		s.log.Warn("the time to drain is over; runs are cut off and given back", "wait", cutOff, "runs", strings.Join(s.executions.names(), " "))
		s.protoactor.Root.Send(s.top, &halt{cause: run.ErrShutdown})
		defer time.AfterFunc(claimLast, s.drain.cut).Stop()
		err = s.executions.wait(last)
	}
	ended := make(chan struct{})
	go func() { // stays behind if last ends first
		s.end()
		close(ended)
	}()
	if err == nil {
		select {
		case <-ended:
			return nil
		case <-last.Done():
		}
	}
	if names := s.executions.names(); len(names) > 0 {
		return fmt.Errorf("actors: %d runs do not end though they were cut off: %s", len(names), strings.Join(names, ", "))
	}
	return fmt.Errorf("actors: the actors of %d sessions do not end", s.Active())
}

// end stops the remaining parts once no run executes.
func (s *System) end() {
	s.drain.begins.Wait()
	s.drain.cut() // no claims are left
	s.protoactor.Root.Send(s.top, &quit{})
	<-s.stopped
	s.endFeeds()
	s.work.End()
	s.leases.Close()
	s.protoactor.Shutdown()
}
