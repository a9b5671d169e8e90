package actors

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rathcluster/rath/run"
)

// drain is the end of a System.
type drain struct {
	begun  chan struct{}
	done   chan struct{}
	once   sync.Once
	begins sync.WaitGroup // claims on their way
	err    error          // of the drain, set before done is closed
}

func (d *drain) init() { d.begun, d.done = make(chan struct{}), make(chan struct{}) }

// cutOff bounds how long executions that were cut off may take to end.
const cutOff = time.Minute

// Run waits until ctx ends and then drains, for at most Options.Drain. It
// returns when everything that the System started has ended.
func (s *System) Run(ctx context.Context) error {
	<-ctx.Done()
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Drain)
	defer cancel()
	return s.Drain(patience)
}

// Drain stops the System: it accepts no more tasks, lets the runs go on until
// ctx ends, cuts off those that are left (they record that they were released,
// and anybody may claim them), saves and stops all sessions, and returns when
// everything that the System started has ended. Calling it again waits for the
// same end.
//
// It fails, and leaves goroutines behind, only when a run does not end within
// a minute of being cut off.
func (s *System) Drain(ctx context.Context) error {
	s.drain.once.Do(func() {
		close(s.drain.begun)
		s.executions.close()
		go func() {
			defer close(s.drain.done)
			s.drain.err = s.wind(ctx)
		}()
	})
	<-s.drain.done
	return s.drain.err
}

// Park is a Drain that lets steps end and not whole runs: each run is released
// before its next step. ctx bounds how long the steps may take.
func (s *System) Park(ctx context.Context) error {
	select {
	case <-s.drain.begun: // it stops already, perhaps it has ended
	default:
		s.protoactor.Root.Send(s.top, &park{})
	}
	return s.Drain(ctx)
}

func (x *executions) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.refuse = true
}

func (s *System) wind(ctx context.Context) error {
	err := s.executions.wait(ctx)
	if err != nil {
		s.protoactor.Root.Send(s.top, &halt{run.ErrShutdown})
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutOff)
		err = s.executions.wait(last)
		cancel()
	}
	if err != nil {
		err = fmt.Errorf("actors: %d runs do not end though they were cut off: %s", s.Running(), strings.Join(s.executions.names(), ", "))
	}
	s.drain.begins.Wait()
	s.protoactor.Root.Send(s.top, &quit{})
	if err != nil {
		return err
	}
	<-s.stopped
	s.work.end()
	s.protoactor.Shutdown()
	return nil
}

// wait returns when nothing executes and nothing is about to, or with ctx's
// error.
func (x *executions) wait(ctx context.Context) error {
	for {
		x.mu.Lock()
		n, changed := len(x.running)+len(x.starting), x.ended
		x.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (x *executions) names() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var names []string
	for k := range x.running {
		names = append(names, string(k.id))
	}
	slices.Sort(names)
	return names
}
