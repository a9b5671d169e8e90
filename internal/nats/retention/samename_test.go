package retention

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// ask waits for an answer, fail fails.
func ask(ctx context.Context, _ flow.Info, s session.Session) (session.Session, error) {
	text, err := flow.Await[string](ctx, "go on?", nil)
	return s.With(session.UserText(text)), err
}

func fail(context.Context, flow.Info, session.Session) (session.Session, error) {
	return session.Session{}, errors.New("no luck")
}

// listed are the states of the runs of a list, which is read in pages of at most limit.
func (w *world) listed(limit int) map[run.ID][]run.State {
	w.t.Helper()
	states := map[run.ID][]run.State{}
	for before, first := uint64(0), true; first || before > 0; first = false {
		h := must.Get(w.conn.Projections.History(w.t.Context(), session.DefaultTenant, before))(w.t)
		rows, next := must.Pair(h.Runs(w.t.Context(), before, limit, project.Choice{Now: time.Now()}))(w.t)
		for _, r := range rows {
			states[r.ID] = append(states[r.ID], r.State)
		}
		before = next
	}
	return states
}

// TestImportOfRunsWithTheSameID imports sessions of another store, whose runs have the ids
// of existing runs: lists, results and verbs still apply to the existing ones. The imported
// sessions are read under their own ids.
func TestImportOfRunsWithTheSameID(t *testing.T) {
	ids := []run.ID{"r1", "r2", "r3", "r4"}
	var docs [][]byte
	var homes []session.ID
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, id := range ids {
			homes = append(homes, w.done("tree", messages.Task{ID: id, Session: "of-" + string(id)}))
		}
		time.Sleep(keep)
		w.prune(w.options())
		docs = w.archives()
	})
	if len(docs) != len(ids) {
		t.Fatalf("%d archives", len(docs))
	}
	for _, earlier := range []bool{true, false} { // than one half of the archives
		inWorld(t, func(t *testing.T, w *world) {
			bringAll := func(docs [][]byte) {
				for _, doc := range docs {
					must.Get(bring(t.Context(), w.conn, doc, "ana"))(t)
				}
			}
			want := map[run.ID]run.State{"r1": run.Running, "r2": run.Failed, "r3": run.Waiting, "r4": run.Succeeded}
			w.begin("hold", messages.Task{ID: "r1"})
			w.begin("fail", messages.Task{ID: "r2"})
			w.begin("ask", messages.Task{ID: "r3"})
			w.done("agent", messages.Task{ID: "r4"})
			w.result("r2")
			time.Sleep(time.Second)
			bringAll(docs)
			if earlier {
				for i := range 3 {
					w.done("agent", messages.Task{ID: run.ID(fmt.Sprint("young", i))})
				}
			}
			for _, limit := range []int{1, 100} {
				got := w.listed(limit)
				for id, state := range want {
					if len(got[id]) != 1 || got[id][0] != state {
						t.Errorf("pages of %d: run %s is listed as %q, want %s", limit, id, got[id], state)
					}
				}
			}
			for id, state := range want {
				r, err := w.client.Runs.Get(t.Context(), id)
				if err != nil || r.State != state || r.Session == homes[0] {
					t.Errorf("run %s is %+v, %v, want %s", id, r, err, state)
				}
				res, err := w.client.Runs.Result(t.Context(), id)
				switch {
				case state.Terminal() && (err != nil || res.State != state):
					t.Errorf("the result of run %s is %+v, %v", id, res, err)
				case !state.Terminal() && !errors.Is(err, run.ErrState):
					t.Errorf("the result of run %s, which is %s: %+v, %v", id, state, res, err)
				}
			}
			for i, home := range homes {
				s, err := w.client.Sessions.Get(t.Context(), string(home))
				if err != nil || s.Total == 0 {
					t.Errorf("session %s, which was brought: %d rows, %v", home, s.Total, err)
				}
				h, err := w.conn.Projections.History(t.Context(), session.DefaultTenant, 0)
				must.Do(t, err)
				rows, err := h.Below(t.Context(), home, project.Choice{Now: time.Now()})
				if err != nil || len(rows) != 1 || rows[0].ID != ids[i] || rows[0].State != run.Succeeded || rows[0].Home.ID != home {
					t.Errorf("below session %s: %+v, %v", home, rows, err)
				}
			}
			close(w.hold)
			if r := w.result("r1"); r.State != run.Succeeded || r.Workflow != "hold" {
				t.Errorf("run r1 ended as %+v", r)
			}
			w.audited()
			time.Sleep(keep)
			w.prune(w.options())
			if r, err := w.client.Runs.Get(t.Context(), "r3"); err != nil || r.State != run.Waiting {
				t.Errorf("run r3 is %+v, %v", r, err)
			}
			w.audited()
		})
	}
}
