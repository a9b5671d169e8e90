package actors_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/session"
)

// TestAnswering checks that a System answers while its log does not, and after its end.
// Package node tests a stuck System, with a question that hangs.
func TestAnswering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faults{}
		sys := start(t, log, actors.Options{})
		silent := make(chan struct{})
		log.set(func() { log.append = func(int, commitlog.Commit) error { <-silent; return nil } })
		waiting := make(chan error, 1)
		go func() {
			one := task("r1", key("s1"))
			_, err := sys.Store().Claim(t.Context(), journal.Claim{
				Session: one.Session, Home: one.Session, Run: one.ID, Task: &one, Open: session.Opening{Kind: session.OpenLeaf},
			})
			waiting <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := sys.Answering(ctx); err != nil {
			t.Errorf("while the log is silent: %v", err)
		}
		close(silent)
		<-waiting
		stop(t, sys)
		if err := sys.Answering(t.Context()); err != nil {
			t.Errorf("after the end: %v", err)
		}
	})
}
