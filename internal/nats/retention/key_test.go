package retention

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestLogsOfKeys removes the logs of a limit and of an event once no run uses them, also
// after a prune that died in between. A node that has them in memory begins them anew, and
// the relays follow. The log of an event that is kept stays.
func TestLogsOfKeys(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.begin("await", messages.Task{ID: "vain"})
		if r := w.result("vain"); r.Code != run.CodeExpired {
			t.Fatalf("%+v", r)
		}
		home := w.done(limited, messages.Task{ID: "first"})
		mint := w.conn.Logs.Minter()
		limit := must.Get(journal.NewLimit(&oneAtATime, nil, mint, &journal.Task{Session: key(""), Workflow: limited}))(t).Log
		event := must.Get(journal.EventLog(mint, session.DefaultTenant, "paid", "4711"))(t)
		kept := must.Get(journal.EventLog(mint, session.DefaultTenant, "paid", "early"))(t)
		must.Do(t, w.client.Publish(t.Context(), "paid", "early", messages.Control{}))
		there := func(id session.ID) uint64 {
			e, err := w.conn.Logs.Log().Last(t.Context(), key(id))
			if errors.Is(err, session.ErrNotFound) {
				return 0
			}
			must.Do(t, err)
			return e.At.Seq
		}
		for there(limit) < 2 || there(event) < 2 {
			time.Sleep(time.Second)
		}
		time.Sleep(keep)
		w.done("agent", messages.Task{ID: "later", Session: string(home)}) // its tree stays
		dies := w.options()
		dead := errors.New("dead")
		dies.after = func(step string) error {
			if step == "close" {
				return dead
			}
			return nil
		}
		if _, err := Prune(t.Context(), w.op, dies); !errors.Is(err, dead) {
			t.Errorf("a prune that dies: %v", err)
		}
		got := strings.Join(states(w.prune(w.options())), "; ")
		if !strings.Contains(got, "removed 1") || !strings.Contains(got, "is used as the log of") || there(limit) != 0 || there(event) != 0 || there(kept) != 1 {
			t.Errorf("pruned %q; %d, %d and %d commits are left, want none, none and one", got, there(limit), there(event), there(kept))
		}
		w.done(limited, messages.Task{ID: "second"})
		w.begin("await", messages.Task{ID: "again"})
		for there(event) == 0 {
			time.Sleep(time.Second)
		}
		must.Do(t, w.client.Publish(t.Context(), "paid", "4711", messages.Control{Value: json.RawMessage("90")}))
		if r := w.result("again"); r.State != run.Succeeded || r.Output != "90" {
			t.Errorf("a run that waits in the log begun anew: %+v", r)
		}
		if e := first(t, w, event); e.At.Seq != 1 {
			t.Errorf("the log begins with commit %d", e.At.Seq)
		}
		w.audited()
	})
}

// first returns the first commit of a session.
func first(t *testing.T, w *world, id session.ID) (first commitlog.Entry) {
	t.Helper()
	for e, err := range w.conn.Logs.Log().Read(t.Context(), key(id), commitlog.Position{}) {
		must.Do(t, err)
		return e
	}
	return first
}
