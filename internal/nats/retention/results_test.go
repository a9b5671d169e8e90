package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// stored are the runs whose results the stream holds.
func (w *world) stored() (ids []string) {
	w.t.Helper()
	must.Do(w.t, w.op.Logs.DumpStream(w.t.Context(), streams.StreamResult, false, func(m eventlog.Stored) error {
		if _, id, _, ok := messages.ParseRunSubject(m.Subject); ok {
			ids = append(ids, string(id))
		}
		return nil
	}))
	slices.Sort(ids)
	return ids
}

// pruned demands that a query for the result of a run, and a wait for it, report that the
// run was pruned, and the archive.
func (w *world) pruned(id run.ID) {
	w.t.Helper()
	_, err := w.client.Runs.Result(w.t.Context(), id)
	if !errors.Is(err, run.ErrPruned) || !errors.Is(err, session.ErrArchived) || !strings.Contains(err.Error(), "rath cluster import") {
		w.t.Errorf("the result of run %s, which was pruned: %v", id, err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if r, err := w.client.Wait(ctx, id); !errors.Is(err, run.ErrPruned) {
		w.t.Errorf("waiting for run %s: %+v, %v", id, r, err)
	}
}

// again submits a task of a pruned run again, with its own body and with another one: it is
// not executed, and both listeners and queries report that.
func (w *world) again(workflow string, task messages.Task) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if r, err := w.client.Do(ctx, workflow, task, nil); !errors.Is(err, run.ErrPruned) {
		w.t.Errorf("run %s again: %+v, %v, want that it was pruned", task.ID, r, err)
	}
	task.Input = json.RawMessage(`"another"`)
	if r, err := w.client.Do(ctx, workflow, task, nil); !errors.Is(err, run.ErrKeyReused) {
		w.t.Errorf("run %s with another body: %+v, %v", task.ID, r, err)
	}
}

// TestPruneFreesResults archives a tree with forks and one with branches. Their results are
// removed with them, and those of old tasks that no log claimed; a younger one stays. Ids
// stay used. A restored tree has its results again.
func TestPruneFreesResults(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.done("tree", messages.Task{ID: "forks"})
		w.done("fan", messages.Task{ID: "fan"})
		named := w.done("agent", messages.Task{ID: "first", Session: "talk"})
		w.done("agent", messages.Task{ID: "second", Session: "talk"})
		w.begin("agent", messages.Task{ID: "refused", ForkOf: "nowhere"})
		if r := w.result("refused"); r.State != run.Failed {
			t.Fatalf("%+v", r)
		}
		must.Get(w.op.Conn.NC.Request("rath.ctl.default.operator.early.cancel", []byte(`{"reason":"not any more"}`), 5*time.Second))(t)
		before := w.result("fan")
		time.Sleep(keep)
		w.done("agent", messages.Task{ID: "young"})
		time.Sleep(time.Second)
		if n := len(w.stored()); n != 9 { // two branches among them
			t.Fatalf("results of %q", w.stored())
		}
		var freed int
		o := w.options()
		o.Freed = func(n int) { freed = n }
		out := w.prune(o)
		if got := states(out); len(got) != 4 || freed != 8 {
			t.Errorf("%q, %d results", got, freed)
		}
		if got := w.stored(); !slices.Equal(got, []string{"young"}) {
			t.Errorf("results of %q are stored", got)
		}
		w.audited()
		for _, id := range []run.ID{"forks", "fan", "first", "second"} {
			w.pruned(id)
		}
		w.again("tree", messages.Task{ID: "forks", Input: json.RawMessage(`"hello"`)})
		w.again("agent", messages.Task{ID: "second", Session: "talk", Input: json.RawMessage(`"hello"`)})
		w.begin("agent", messages.Task{ID: "refused", ForkOf: "nowhere"})
		if r := w.result("refused"); r.State != run.Failed || r.Code != run.CodeNotFound {
			t.Errorf("what was refused is %+v", r)
		}
		w.begin("agent", messages.Task{ID: "early"})
		if r := w.result("early"); r.State != run.Cancelled {
			t.Errorf("what was cancelled is %+v", r)
		}
		if got := w.stored(); !slices.Equal(got, []string{"early", "refused", "young"}) {
			t.Errorf("results of %q are stored", got)
		}
		w.audited()
		for _, doc := range w.archives() {
			must.Get(bring(t.Context(), w.conn, doc, "ana"))(t)
		}
		if got := w.stored(); len(got) != 9 {
			t.Errorf("brought back: results of %q", got)
		}
		if r := w.result("fan"); !reflect.DeepEqual(r, before) {
			t.Errorf("brought back: %+v, want %+v", r, before)
		}
		w.begin("tree", messages.Task{ID: "forks"})
		if r := w.result("forks"); r.State != run.Succeeded {
			t.Errorf("brought back: %+v", r)
		}
		if _, err := w.texts(named); err != nil {
			t.Error(err)
		}
		w.audited()
	})
}

// TestCrashWhileFreeing ends a prune after each result that it removes, and at each step
// before. No task runs again, and the next prune removes the rest.
func TestCrashWhileFreeing(t *testing.T) {
	for _, step := range []string{"purge 2", "purge 0", "free"} {
		t.Run(strings.ReplaceAll(step, " ", "-"), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.done("tree", messages.Task{ID: "r1"})
				w.done("fan", messages.Task{ID: "r2"})
				time.Sleep(keep)
				w.cutOff(step)
				w.audited()
				for id, workflow := range map[run.ID]string{"r1": "tree", "r2": "fan"} {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					r, err := w.client.Do(ctx, workflow, messages.Task{ID: id, Input: json.RawMessage(`"hello"`)}, nil)
					cancel()
					if r.State != run.Succeeded && !errors.Is(err, run.ErrPruned) {
						t.Errorf("run %s again: %+v, %v", id, r, err)
					}
				}
				w.audited()
				w.prune(w.options())
				if got := w.stored(); len(got) > 0 {
					t.Errorf("results of %q are stored", got)
				}
				w.pruned("r1")
				w.pruned("r2")
				w.nothingLost(6)
				w.audited()
			})
		})
	}
}

// limit sets how many bytes a stream may hold.
func (w *world) limit(stream string, most uint64) {
	w.t.Helper()
	ask := func(verb string, body []byte) (reply struct {
		Config map[string]any
		Error  *struct{ Description string }
	},
	) {
		w.t.Helper()
		m, err := w.op.Conn.NC.Request("$JS.API.STREAM."+verb+"."+stream, body, 5*time.Second)
		if err == nil {
			err = json.Unmarshal(m.Data, &reply)
		}
		if err != nil || reply.Error != nil {
			w.t.Fatal(err, reply.Error)
		}
		return reply
	}
	config := ask("INFO", nil).Config
	config["max_bytes"] = most
	body := must.Get(json.Marshal(config))(w.t)
	ask("UPDATE", body)
}

// TestPruneMakesRoom fills the stream of results to 87 %: no run begins, and the reason
// names the command. The command frees the stream, and the waiting runs begin.
func TestPruneMakesRoom(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		watching, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.work.Go(func() { _ = w.conn.Streams.Capacity.WatchRoom(watching) })
		for i := range 12 {
			w.done("agent", messages.Task{ID: run.ID(fmt.Sprint("fill", i))})
		}
		info := must.Get(w.op.Messages.StreamInfo(t.Context(), streams.StreamResult))(t)
		w.limit(streams.StreamResult, info.State.Bytes*100/87)
		time.Sleep(keep)
		w.begin("agent", messages.Task{ID: "late"})
		time.Sleep(time.Minute)
		if _, err := w.client.Runs.Result(t.Context(), "late"); err == nil {
			t.Error("a run began with the stream of results full")
		}
		refused := w.conn.Dispatch.Admit(t.Context(), key(w.conn.Logs.HomeOf("default", "late")))
		if !errors.Is(refused, run.ErrBusy) || !strings.Contains(refused.Error(), "stream RESULT holds 8") || !strings.Contains(refused.Error(), "rath cluster prune") {
			t.Errorf("why no run begins: %v", refused)
		}
		for _, out := range w.prune(w.options()) {
			if out.State != Archived {
				t.Errorf("tree %s is %s: %s", out.Root, out.State, out.Reason)
			}
		}
		if r := w.result("late"); r.State != run.Succeeded {
			t.Errorf("%+v", r)
		}
		cancel()
		w.audited()
	})
}
