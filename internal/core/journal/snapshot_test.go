package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// plainLog hides the snapshots of a log.
type plainLog struct{ commitlog.Log }

func (h *theatre) compare(k session.Key, what string) {
	h.t.Helper()
	want := must.Get(LoadStateMachine(h.t.Context(), plainLog{h.log}, NewValues(plainLog{h.log}), k, "reader"))(h.t)
	got := must.Get(LoadStateMachine(h.t.Context(), h.log, NewValues(h.log), k, "reader"))(h.t)
	h.same(want, got, what)
	h.same(want, h.writer(k), what+" of the live writer")
}

func (h *theatre) same(want, got *StateMachine, what string) {
	h.t.Helper()
	if got == nil {
		h.t.Fatalf("%s: nothing", what)
	}
	a, b := h.show(want), h.show(got)
	if reflect.DeepEqual(a, b) { // much faster
		return
	}
	if diff := cmp.Diff(a, b, cmpopts.EquateEmpty(), cmp.AllowUnexported(Record{}, session.Session{}, paged[*Step]{})); diff != "" {
		h.t.Fatalf("%s differs (-folded +loaded):\n%s", what, diff)
	}
}

// save stores the state of a writer, as a driver does that can wait for it.
func save(ctx context.Context, log commitlog.Log, w *StateMachine) error {
	s, err := w.Snapshot()
	if err != nil {
		return err
	}
	return s.Save(ctx, log)
}

// TestSnapshotOfAnyHistory: loading a snapshot taken at any point, and then the commits
// after it, gives the same state and the same decisions as folding the whole log.
func TestSnapshotOfAnyHistory(t *testing.T) {
	errs := map[string]int{}
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := newTheatre(t, seed)
			for i := range 500 {
				h.act()
				if k, _ := pick(h.r, h.keys); h.r.IntN(12) == 0 {
					must.Do(t, save(t.Context(), h.log, h.writer(k)))
					if n := h.writer(k).SinceSnapshot(); n != 0 {
						t.Fatalf("%d commits since a snapshot that was just taken", n)
					}
				}
				if h.r.IntN(80) == 0 {
					k, _ := pick(h.r, h.keys)
					h.compare(k, fmt.Sprintf("%s after move %d", k, i))
				}
			}
			h.compare(h.keys[0], "the home")
			for code, n := range h.errs {
				errs[code] += n
			}
			b := h.writer(h.keys[0]).RunState()
			t.Logf("%d sessions, %d commits, %d chunks, %d runs of which %d ended", len(h.keys), h.writer(h.keys[0]).At().Seq,
				h.writer(h.keys[0]).Session().Len(), len(b.runs), len(b.ended.items))
		})
	}
	t.Logf("refusals: %v", errs)
	for _, want := range []run.Code{run.CodeState, run.CodeCancelled, run.CodeSuperseded, run.CodeUnknownRun} {
		if errs[string(want)] == 0 {
			t.Errorf("no history met %s: %v", want, errs)
		}
	}
}

// counting counts the requests to a log.
type counting struct {
	*commitlog.Memory
	saved map[string]int // pages
	bytes int
	loads int
	fail  error
}

func (c *counting) SavePage(ctx context.Context, t session.Tenant, digest string, page []byte) error {
	if c.fail != nil {
		return c.fail
	}
	if c.saved == nil {
		c.saved = map[string]int{}
	}
	c.saved[digest]++
	c.bytes += len(page)
	return c.Memory.SavePage(ctx, t, digest, page)
}

func (c *counting) Save(ctx context.Context, k session.Key, at commitlog.Position, state []byte) error {
	c.bytes += len(state)
	return c.Memory.Save(ctx, k, at, state)
}

func (c *counting) LoadPage(ctx context.Context, t session.Tenant, digest string) ([]byte, error) {
	c.loads++
	return c.Memory.LoadPage(ctx, t, digest)
}

// long makes a session of n chunks, many in a commit.
func long(t testing.TB, log commitlog.Log, k session.Key, n int) *StateMachine {
	t.Helper()
	w := NewStateMachine(k, "n", NewValues(log).Resolver(context.Background()))
	now := fromMillis(1_700_000_000_000)
	step := func(decide func() error) {
		t.Helper()
		must.Do(t, decide())
		c, _ := w.Take()
		at := must.Get(log.Append(context.Background(), w.At(), c))(t)
		w.Committed(at)
	}
	step(func() error {
		task := &Task{ID: "r", Workflow: "w", Session: k}
		_, err := w.Claim(Claim{Session: k, Home: k, Run: "r", Task: task, Open: session.Opening{Kind: session.OpenLeaf}}, now)
		return err
	})
	for i := 0; w.Session().Len() < n; i++ {
		var events []session.Event
		for range min(n-w.Session().Len(), 2) { // a turn: the model's message and the tool's answer
			c := session.AssistantText(fmt.Sprintf("chunk %d: the quick brown fox jumps over the lazy dog, again and again and again", w.Session().Len()))
			events = append(events, session.ChunkEvent(c.Of(session.Origin{
				Agent: "writer", Workflow: "report", Node: "node-1", Run: "r", Step: fmt.Sprint(i), Usage: session.Usage{Calls: 1, Input: 100, Output: 10},
			})))
		}
		p := run.Path(fmt.Sprint(i))
		if n <= 1000 {
			events = append(events, event(KindStepCompleted, StepCompleted{Attempt: 1, Input: "0123456789abcdef", Kind: StepModel, Name: "writer", Path: p, Row: true, Run: "r"}))
		}
		step(func() error {
			_, err := w.Commit(Batch{Session: k, Run: "r", Attempt: 1, Path: p, Base: w.Session().Ref().Version, Events: events}, now)
			return err
		})
	}
	return w
}

var longKey = session.Key{Tenant: "t", ID: "long"}

// TestSnapshotCost: pages are stored once, and a snapshot of a long session writes no
// more than that of a short one.
func TestSnapshotCost(t *testing.T) {
	cost := func(n int) int {
		log := &counting{Memory: &commitlog.Memory{}}
		w := long(t, log, longKey, n)
		must.Do(t, save(t.Context(), log, w))
		before := log.bytes
		for i := range 40 { // turns, with a snapshot after each fourth
			e := session.ChunkEvent(session.UserText(fmt.Sprint("more ", i)))
			must.Get(w.Commit(Batch{Session: longKey, Run: "r", Attempt: 1, Path: run.Path(fmt.Sprint("x", i)), Base: w.Session().Ref().Version, Events: []session.Event{e}}, fromMillis(1_800_000_000_000)))(t)
			c, _ := w.Take()
			at := must.Get(log.Append(t.Context(), w.At(), c))(t)
			w.Committed(at)
			if i%4 == 3 {
				must.Do(t, save(t.Context(), log, w))
			}
		}
		for digest, n := range log.saved {
			if n > 1 {
				t.Errorf("page %.8s was stored %d times", digest, n)
			}
		}
		return log.bytes - before
	}
	short, longer := cost(2000), cost(4000) // both end 80 chunks after a page
	t.Logf("bytes of 10 snapshots: %d at 2,000 chunks, %d at 4,000", short, longer)
	if longer > short+short/2 {
		t.Errorf("snapshots of a session twice as long take %d bytes instead of %d", longer, short)
	}
}

// TestSnapshotOfFork: the first snapshot of a fork names its ancestor's pages.
func TestSnapshotOfFork(t *testing.T) {
	log := &counting{Memory: &commitlog.Memory{}}
	values := NewValues(log)
	w := long(t, log, longKey, 3000)
	must.Do(t, save(t.Context(), log, w))
	values.Keep(w.Session())
	before := log.bytes
	parent := w
	const depth = 100
	for i := range depth {
		k := session.Key{Tenant: "t", ID: session.ID(fmt.Sprint("fork", i))}
		l, _ := parent.Session().Link()
		child := NewStateMachine(k, "n", values.Resolver(t.Context()))
		c := Claim{
			Session: k, Home: longKey, Run: "r", Attempt: 1, Root: longKey.ID,
			Open:   session.Opening{Kind: session.OpenFork, Parents: []session.Link{l}},
			Events: []session.Event{session.ChunkEvent(session.UserText("mine"))},
		}
		must.Get(child.Claim(c, fromMillis(1_800_000_000_000)))(t)
		commit, _ := child.Take()
		at := must.Get(log.Append(t.Context(), child.At(), commit))(t)
		child.Committed(at)
		must.Do(t, save(t.Context(), log, child))
		values.Keep(child.Session())
		parent = child
	}
	if per := (log.bytes - before) / depth; per > 40<<10 {
		t.Errorf("a fork's first snapshot takes %d bytes", per)
	}
	log.loads = 0
	got := must.Get(LoadStateMachine(t.Context(), log, NewValues(log), parent.key, "reader"))(t)
	if got.Session().Len() != 3000+depth || got.SinceSnapshot() != 0 {
		t.Errorf("loaded %d chunks, folded %d commits", got.Session().Len(), got.SinceSnapshot())
	}
	if log.loads > 60 {
		t.Errorf("a fork %d deep loads %d pages", depth, log.loads)
	}
	base := w.Session().Ref().Version
	for version, owner := range map[session.Version]session.Key{1: longKey, base: longKey, base + 1: {Tenant: "t", ID: "fork0"}, base + 9: {Tenant: "t", ID: "fork8"}} {
		want := fmt.Sprintf("which begins at %d: session: not found; that version is %s:%d", base+depth-1, owner.ID, version)
		if _, err := NewValues(log).At(t.Context(), session.Ref{Key: parent.key, Version: version}); !errors.Is(err, session.ErrNotFound) || !strings.Contains(err.Error(), want) {
			t.Errorf("version %d of the last fork: %v, want %q", version, err, want)
		}
		if s, err := NewValues(log).At(t.Context(), session.Ref{Key: owner, Version: version}); err != nil || s.Ref().Version != version {
			t.Errorf("version %d of %s is %s, %v", version, owner.ID, s.Ref(), err)
		}
	}
	n, at, ok := session.CommonLen(w.Session(), got.Session())
	if n != 3000 || at.Key != longKey || !ok {
		t.Errorf("the fork shares %d chunks with %s, %v", n, at, ok)
	}
}

// TestSnapshotIgnored: a snapshot that contradicts the log or cannot be read is
// ignored.
func TestSnapshotIgnored(t *testing.T) {
	ctx := t.Context()
	fresh := func() (*counting, *StateMachine) {
		log := &counting{Memory: &commitlog.Memory{}}
		w := long(t, log, longKey, 300)
		must.Do(t, save(ctx, log, w))
		return log, w
	}
	want := func(log commitlog.Log, folded int) *StateMachine {
		t.Helper()
		w := must.Get(LoadStateMachine(ctx, log, NewValues(log), longKey, "reader"))(t)
		if w.Session().Len() != 300 || w.SinceSnapshot() != folded {
			t.Errorf("loaded %d chunks and folded %d commits, want 300 and %d", w.Session().Len(), w.SinceSnapshot(), folded)
		}
		return w
	}
	log, w := fresh()
	all := int(w.At().Seq)
	want(log, 0)
	if got := want(plainLog{log}, all); got.Session().Ref() != w.Session().Ref() {
		t.Errorf("folded %s", got.Session().Ref())
	}
	at, state := must.Pair(log.Load(ctx, longKey))(t)
	change := func(at commitlog.Position, edit func(map[string]any)) {
		t.Helper()
		var tree map[string]any
		must.Do(t, json.Unmarshal(state, &tree))
		edit(tree)
		raw := must.Get(json.Marshal(tree))(t)
		other, _ := fresh()
		moved := &replaced{counting: other, at: at, state: raw}
		want(moved, all)
		if s, err := NewValues(moved).At(ctx, session.Ref{Key: longKey}); err != nil || s.Len() != 300 {
			t.Errorf("values read %d chunks, %v", s.Len(), err)
		}
	}
	nothing := func(map[string]any) {}
	change(at, func(m map[string]any) { m["fold"] = foldVersion + 1 })
	change(at, func(m map[string]any) { m["tables"] = []any{} })
	change(at, func(m map[string]any) { m["open"] = "what" })
	wrong := at
	wrong.Hash[0]++
	change(wrong, nothing)
	later := at
	later.Seq++
	change(later, nothing)
	// A state whose own history differs from its position.
	change(at, func(m map[string]any) {
		table := m["tables"].([]any)[0].(map[string]any)
		table["at"].(map[string]any)["hash"] = wrong.Hash.String()
	})
	change(at, func(m map[string]any) {
		table := m["tables"].([]any)[0].(map[string]any)
		table["pages"].([]any)[0].(map[string]any)["parts"] = []any{session.Hash{}.String()}
	})
	change(at, func(m map[string]any) { m["tables"].([]any)[0].(map[string]any)["tail_len"] = 1 })
	change(at, func(m map[string]any) { m["tables"].([]any)[0].(map[string]any)["tail"] = "AAAA" })
}

// replaced has another state than the saved one.
type replaced struct {
	*counting
	at    commitlog.Position
	state []byte
}

func (r *replaced) Load(context.Context, session.Key) (commitlog.Position, []byte, error) {
	return r.at, r.state, nil
}

// TestSnapshotSaveFails: a page that could not be stored is stored by the next
// snapshot.
func TestSnapshotSaveFails(t *testing.T) {
	log := &counting{Memory: &commitlog.Memory{}, fail: errors.New("disk full")}
	w := long(t, log, longKey, 300)
	if err := save(t.Context(), log, w); !errors.Is(err, log.fail) {
		t.Errorf("Save = %v, want the page's error", err)
	}
	if _, _, err := log.Load(t.Context(), longKey); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("a state was saved without its pages: %v", err)
	}
	log.fail = nil
	must.Do(t, save(t.Context(), log, w))
	got, err := LoadStateMachine(t.Context(), log, NewValues(log), longKey, "reader")
	if err != nil || got.SinceSnapshot() != 0 || got.Session().Len() != 300 {
		t.Errorf("loaded %d chunks, folded %d commits, %v", got.Session().Len(), got.SinceSnapshot(), err)
	}
	if err := save(t.Context(), plainLog{log}, w); err != nil {
		t.Errorf("Save to a log without snapshots: %v", err)
	}
	must.Get(w.Commit(Batch{Session: longKey, Run: "r", Attempt: 1, Path: "z", Events: []session.Event{event(KindWarning, Warning{Run: "r"})}}, fromMillis(1)))(t)
	if _, err := w.Snapshot(); !errors.Is(err, run.ErrState) {
		t.Errorf("Snapshot while events are staged: %v, want ErrState", err)
	}
}

// TestSnapshotOfManyRuns: ended runs are in pages, and a change after a run's end, by a
// late outcome, is detected.
func TestSnapshotOfManyRuns(t *testing.T) {
	h := newTheatre(t, 1)
	k := h.keys[0]
	for i := range 200 {
		id := run.ID(fmt.Sprint("run", i))
		task := &Task{ID: id, Workflow: "w", Session: k}
		open := session.Opening{Kind: session.OpenLeaf}
		must.Do(t, h.do(k, func(w *StateMachine) error {
			_, err := w.Claim(Claim{Session: k, Home: k, Run: id, Task: task, Open: open}, h.now)
			return err
		}))
		end := event(KindEnded, Ended{Run: id, State: run.Succeeded, Output: "o", Workflow: "w"})
		must.Do(t, h.do(k, func(w *StateMachine) error { _, err := w.Commit(h.batch(w, id, "end", end), h.now); return err }))
		if i%30 == 29 {
			must.Do(t, save(t.Context(), h.log, h.writer(k)))
		}
	}
	h.compare(k, "after 200 runs")
	late := event(KindStepCompleted, StepCompleted{Attempt: 1, Input: "i", Kind: StepDo, Name: "n", Path: "9", Run: "run3", Value: "1"})
	if err := h.do(k, func(w *StateMachine) error { _, err := w.Commit(h.batch(w, "run3", "9", late), h.now); return err }); !errors.Is(err, run.ErrSuperseded) {
		t.Fatalf("a step of a run that ended: %v", err)
	}
	must.Do(t, save(t.Context(), h.log, h.writer(k)))
	h.compare(k, "after a late outcome")
	w, err := LoadStateMachine(t.Context(), h.log, NewValues(h.log), k, "reader")
	if err != nil || w.SinceSnapshot() != 0 || len(w.state.ended.pages) != 3 {
		t.Fatalf("folded %d commits, %d pages of ended runs: %v", w.SinceSnapshot(), len(w.state.ended.pages), err)
	}
	if w.RunState().Run("run3").late != 1 || w.RunState().Run("run4").late != 0 {
		t.Error("the late outcome is not counted")
	}
}

// TestSnapshotOfLongState: a state that is too long for one message is split into
// pages, and so are many joins.
func TestSnapshotOfLongState(t *testing.T) {
	h := newTheatre(t, 1)
	k := h.keys[0]
	for i := range maxQueue {
		id := run.ID(fmt.Sprint("run", i))
		task := &Task{ID: id, Workflow: "w", Session: k}
		for n := range 300 {
			task.Tools = append(task.Tools, fmt.Sprint("a tool with a long name ", n))
		}
		open := session.Opening{Kind: session.OpenLeaf}
		must.Do(t, h.do(k, func(w *StateMachine) error {
			_, err := w.Claim(Claim{Session: k, Home: k, Run: id, Task: task, Open: open}, h.now)
			return err
		}))
	}
	for i := range 50 {
		l, _ := h.writer(k).Session().Link()
		b := session.Key{Tenant: "t", ID: session.ID(fmt.Sprint("b", i))}
		c := Claim{
			Session: b, Home: k, Run: "run0", Attempt: 1, Root: k.ID, Events: []session.Event{h.chunk()},
			Open: session.Opening{Kind: session.OpenFork, Parents: []session.Link{l}},
		}
		must.Do(t, h.do(b, func(w *StateMachine) error { _, err := w.Claim(c, h.now); return err }))
		j := must.Get(session.JoinOf(h.writer(k).Session(), session.JoinSinceAncestor, "", -1, h.writer(b).Session()))(t)
		must.Do(t, h.do(k, func(w *StateMachine) error {
			_, err := w.Commit(h.batch(w, "run0", run.Path(fmt.Sprint(i)), session.JoinedEvent(j)), h.now)
			return err
		}))
	}
	must.Do(t, save(t.Context(), h.log, h.writer(k)))
	_, state, err := h.log.Load(t.Context(), k)
	if err != nil || len(state) > 1000 {
		t.Fatalf("the state has %d bytes, %v", len(state), err)
	}
	w, err := LoadStateMachine(t.Context(), h.log, NewValues(h.log), k, "reader")
	if err != nil || w.SinceSnapshot() != 0 {
		t.Fatalf("folded %d commits, %v", w.SinceSnapshot(), err)
	}
	h.compare(k, "a long state")
}
