package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestForkMadeMeanwhile delivers a task that forks a session, when the fork exists already
// although the task had no record when it was looked up: as on a node that froze after its
// look. Another delivery of this task made the fork, or another task did.
func TestForkMadeMeanwhile(t *testing.T) {
	for by, want := range map[run.ID]run.State{"r1": "", "r2": run.Failed} {
		t.Run("by "+string(by), func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Dispatch, _ *natstest.Wire) {
				tenant := session.Tenant("default")
				parent := session.Key{Tenant: tenant, ID: c.logs.HomeOf(tenant, "r0")}
				home := session.Key{Tenant: tenant, ID: c.logs.HomeOf(tenant, "r1")}
				sessiontest.Grow(t, c.logs.Log(), parent, commitlog.Position{}, 1)
				submitTo(t, c.logs.Log(), home, by)

				body := fmt.Sprintf(`{"id":"r1","fork_of":"%s:1","input":"hi"}`, parent.ID)
				must.Get(c.conn.JS.Publish(t.Context(), messages.TaskSubject(tenant, messages.UserAnonymous, "w"), []byte(body)))(t)
				taken := pullWhile(t, c, time.Minute, Intake{})
				if accepted := want == ""; accepted != (taken == 1) {
					t.Errorf("it was given to a log %d times", taken)
				}
				if state := streamstest.ResultOf(t, c.streams, tenant, "r1"); state != want {
					t.Errorf("its result says %q, want %q", state, want)
				}
			})
		})
	}
}

// TestLateMeanwhile delivers a task whose deadline passed while a stream was nearly full,
// to a node that freezes before it records the refusal. The work of another delivery
// meanwhile counts: it began the run, or only chose its session.
func TestLateMeanwhile(t *testing.T) {
	for name, tc := range map[string]struct {
		begun bool
		want  run.State
	}{"begun": {true, ""}, "chosen": {false, run.Failed}} {
		t.Run(name, func(t *testing.T) {
			layer.InBubble(t, func(t *testing.T, c *Dispatch, w *natstest.Wire) {
				tenant := session.Tenant("default")
				full := &streams.StreamUsage{Needed: true}
				full.Bytes.Store(87)
				full.Max.Store(100)
				c.streams.Capacity.Streams[streams.StreamBlob] = full
				body := fmt.Appendf(nil, `{"id":"r1","input":"hi","deadline":%q}`, time.Now().UTC().Format(time.RFC3339))

				other := layer.Dial(t, &c.streams.O)
				a := aliasOf(t, c, tenant, body)
				hook, fired := natstest.Once(`"refused"`, func([]byte) bool {
					w.Set(nil, nil)
					if _, _, _, err := eventlog.CreateAlias(t.Context(), other.logs, eventlog.RunAliasSubject(tenant, "r1"), a); err != nil {
						t.Error(err)
					}
					if tc.begun {
						submitTo(t, other.logs.Log(), session.Key{Tenant: tenant, ID: a.Session}, "r1")
					}
					return true
				})
				w.Set(nil, hook)
				must.Get(c.conn.JS.Publish(t.Context(), messages.TaskSubject(tenant, messages.UserAnonymous, "w"), body))(t)
				taken := pullWhile(t, c, 2*placing, Intake{})
				if !fired() || taken != 0 {
					t.Errorf("it was about to be refused: %v, and given to a log %d times", fired(), taken)
				}
				if state := streamstest.ResultOf(t, c.streams, tenant, "r1"); state != tc.want {
					t.Errorf("its result says %q, want %q", state, tc.want)
				}
			})
		})
	}
}

// submitTo makes a session whose log holds a task.
func submitTo(t *testing.T, l commitlog.Log, home session.Key, id run.ID) {
	t.Helper()
	submitted := must.Get(journal.NewEvent(journal.KindSubmitted, map[string]any{"digest": "d", "task": map[string]any{"run": id, "workflow": "w"}}))(t)
	first := sessiontest.Commit(home, commitlog.Position{}, "hi")
	first.Events = append(first.Events, submitted)
	sessiontest.Append(t, l, commitlog.Position{}, first)
}
