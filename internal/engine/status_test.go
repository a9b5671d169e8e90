package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// statusLog notes the statuses of each commit, and the number of events beside them.
type statusLog struct {
	journal.Store
	mu    sync.Mutex // commits of a status alone are concurrent with those of steps
	noted []string
}

func (s *statusLog) Commit(ctx context.Context, b journal.Batch) (journal.Ack, error) {
	ack, err := s.Store.Commit(ctx, b)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range b.Events {
		if v, bad := journal.Decode[journal.Status](e); bad == nil && e.Kind == journal.KindStatus && err == nil {
			s.noted = append(s.noted, fmt.Sprintf("%s+%d", v.Value, len(b.Events)-1))
		}
	}
	return ack, err
}

// TestStatus: a status goes along with the next commit, and has one of its own after a
// second without. The last one is kept. A second execution records none again.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := func(after func()) flow.Func {
			return func(ctx context.Context, s session.Session) (session.Session, error) {
				set := func(v any) {
					if err := flow.SetStatus(ctx, v); err != nil {
						t.Error(err)
					}
				}
				step := func(name string, f func()) error {
					_, err := flow.Do(ctx, name, func(context.Context) (int, error) { f(); return 1, nil }, tool.Idempotent)
					return err
				}
				for i := range 100 { // ten a second, for ten seconds
					set(i)
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(time.Second)
				set("with the step")
				err := step("one", func() { set("in the step"); time.Sleep(3 * time.Second); set("at its end") })
				if err != nil {
					return s, err
				}
				after()
				if err := step("two", func() {}); err != nil {
					return s, err
				}
				if err := flow.SetStatus(ctx, strings.Repeat("x", 4<<10)); !errors.Is(err, session.ErrTooLarge) {
					t.Errorf("4 KiB and two quotes: %v", err)
				}
				set(map[string]any{"done": 2})
				return s.With(session.AssistantText("done")), nil
			}
		}
		var w world
		rt := w.runtime(nil)
		log := &statusLog{Store: rt.Runtime.Store}
		rt.Runtime.Store = log
		ctx, stop := context.WithCancelCause(t.Context())
		forward(t, ctx, start(t, rt, work(func() { stop(run.ErrShutdown) })), run.Queued)
		own := slices.DeleteFunc(slices.Clone(log.noted), func(n string) bool { return strings.HasPrefix(n, `"`) })
		if len(own) < 10 || len(own) > 11 || own[len(own)-1] != "99+0" {
			t.Errorf("100 in ten seconds made %v", own)
		}
		if rest := log.noted[len(own):]; !slices.Equal(rest, []string{`"in the step"+0`, `"at its end"+1`}) {
			t.Errorf("then %v", rest)
		}
		rt = w.runtime(nil)
		log = &statusLog{Store: rt.Runtime.Store}
		rt.Runtime.Store = log
		forward(t, t.Context(), start(t, rt, work(func() {}), resume), run.Succeeded)
		if len(log.noted) != 1 || !strings.HasPrefix(log.noted[0], `{"done":2}`) || strings.HasSuffix(log.noted[0], "+0") {
			t.Errorf("the second execution recorded %v", log.noted)
		}
	})
}
