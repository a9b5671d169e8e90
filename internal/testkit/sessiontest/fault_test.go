package sessiontest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/session"
)

func TestFaultLogPlaysNothing(t *testing.T) {
	sessiontest.TestLog(t, func(*testing.T) commitlog.Log {
		return sessiontest.NewFaultLog(&commitlog.Memory{}, nil)
	})
}

func TestFaultLog(t *testing.T) {
	k := session.Key{Tenant: "t", ID: "s"}
	e := session.ChunkEvent(session.UserText("x"))
	for name, c := range map[string]struct {
		fault  sessiontest.Fault
		err    error
		stored int // at once
		later  int // after a minute
		down   bool
	}{
		"nothing":      {sessiontest.Fault{}, nil, 1, 1, false},
		"stall":        {sessiontest.Fault{Stall: time.Second}, nil, 1, 1, false},
		"conflict":     {sessiontest.Fault{Conflict: true}, session.ErrConflict, 0, 0, false},
		"unavailable":  {sessiontest.Fault{Unavailable: true}, session.ErrUnavailable, 0, 0, false},
		"lost":         {sessiontest.Fault{Lost: true}, session.ErrUnavailable, 1, 1, false},
		"late":         {sessiontest.Fault{Late: time.Second}, session.ErrUnavailable, 0, 1, false},
		"crash before": {sessiontest.Fault{CrashBefore: true}, session.ErrUnavailable, 0, 0, true},
		"crash after":  {sessiontest.Fault{CrashAfter: true}, session.ErrUnavailable, 1, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var inner commitlog.Memory
				log := sessiontest.NewFaultLog(&inner, func(n int, got commitlog.Commit) sessiontest.Fault {
					if n != 1 || got.Key != k {
						t.Errorf("asked about append %d of %s", n, got.Key)
					}
					return c.fault
				})
				stored := func() (n int) {
					for range inner.Read(t.Context(), k, commitlog.Position{}) {
						n++
					}
					return n
				}
				_, err := log.Append(t.Context(), commitlog.Position{}, sessiontest.Next(k, commitlog.Position{}, e))
				if !errors.Is(err, c.err) || c.err == nil && err != nil {
					t.Errorf("Append: %v, want %v", err, c.err)
				}
				if got := stored(); got != c.stored {
					t.Errorf("%d commits stored, want %d", got, c.stored)
				}
				log.Wait()
				if got := stored(); got != c.later {
					t.Errorf("%d commits stored later, want %d", got, c.later)
				}
				if _, err := log.Last(t.Context(), k); c.down != errors.Is(err, session.ErrUnavailable) || c.down != log.Crashed() {
					t.Errorf("Last: %v, crashed %v", err, log.Crashed())
				}
				log.Restart()
				if _, err := log.Last(t.Context(), k); (c.later == 0) != errors.Is(err, session.ErrNotFound) {
					t.Errorf("Last after a restart: %v", err)
				}
				if log.Appends() != 1 {
					t.Errorf("%d appends", log.Appends())
				}
			})
		})
	}
}
