package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

var update = flag.Bool("update", false, "write the golden files; only for a new schema or fold version")

func golden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, got, 0o644))
	}
	want := must.Get(os.ReadFile(path))(t)
	want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-file +now):\n%s", name, diff)
	}
	return want
}

// play is a history with each event of this package, the same every time.
func play(t *testing.T) *theatre {
	t.Helper()
	h := newTheatre(t, 0)
	home := h.keys[0]
	branch := session.Key{Tenant: "t", ID: "branch"}
	do := func(k session.Key, want error, decide func(*StateMachine) error) {
		t.Helper()
		h.now = fromMillis(1_700_000_000_000 + int64(h.n))
		h.n++
		if err := h.do(k, decide); !errors.Is(err, want) {
			t.Fatalf("move %d: %v, want %v", h.n, err, want)
		}
	}
	claim := func(k session.Key, c Claim) {
		t.Helper()
		c.Session = k
		do(k, nil, func(w *StateMachine) error { _, err := w.Claim(c, h.now); return err })
	}
	commit := func(k session.Key, id run.ID, p run.Path, want error, events ...session.Event) {
		t.Helper()
		do(k, want, func(w *StateMachine) error {
			b := Batch{Session: k, Run: id, Attempt: w.RunState().Run(id).Attempt, Path: p, Base: w.Session().Ref().Version, Events: events}
			_, err := w.Commit(b, h.now)
			return err
		})
	}
	signal := func(s Signal) {
		t.Helper()
		do(s.To, nil, func(w *StateMachine) error { return w.Signal(s, h.now) })
	}
	leaf := session.Opening{Kind: session.OpenLeaf, Run: "r1"}
	task := func(id run.ID) *Task {
		return &Task{ID: id, Workflow: "w", Revision: "7", Session: home, Input: json.RawMessage(`{"x":1.5}`), Tools: []string{"send"}, Budget: run.Budget{Tokens: 1000}}
	}
	claim(home, Claim{Home: home, Run: "r1", Task: task("r1"), Revision: "7", Open: leaf, Events: []session.Event{session.ChunkEvent(session.UserText("go"))}})
	claim(home, Claim{Home: home, Run: "r2", Task: task("r2")})
	claim(home, Claim{Home: home, Run: "r3", Task: task("r3")})
	chunk := session.ChunkEvent(session.AssistantText("hello").Of(session.Origin{Agent: "a", Usage: session.Usage{Calls: 1, Input: 9}}))
	commit(home, "r1", "0", nil, chunk, event(KindStepCompleted, StepCompleted{Attempt: 1, Elapsed: 5, Input: "i", Kind: StepModel, Model: "m", Name: "a", Path: "0", Row: true, Run: "r1", Usage: session.Usage{Calls: 1, Input: 9}}))
	commit(home, "r1", "1", nil, event(KindStepCompleted, StepCompleted{Attempt: 1, Input: "i", Kind: StepFork, Links: []session.Link{{Ref: session.Ref{Key: branch}}}, Path: "1", Run: "r1"}))
	l, _ := h.writer(home).Session().Link()
	claim(branch, Claim{Home: home, Run: "r1", Attempt: 1, Root: "home", Open: session.Opening{Kind: session.OpenFork, Parents: []session.Link{l}, Run: "r1", Step: "1"}})
	commit(branch, "r1", "2", nil, chunk, event(KindStepCompleted, StepCompleted{Attempt: 1, Input: "i", Kind: StepModel, Name: "a", Path: "2", Row: true, Run: "r1"}))
	b := h.writer(branch).Session()
	j := must.Get(session.JoinOf(h.writer(home).Session(), session.JoinAdopt, "good", 0, b))(t)
	bl, _ := b.Link()
	commit(home, "r1", "3", nil, session.JoinedEvent(j), event(KindStepCompleted, StepCompleted{Attempt: 1, Input: "i", Kind: StepJoin, Name: session.JoinAdopt, Links: []session.Link{bl}, Path: "3", Run: "r1"}))
	commit(branch, "r1", "", nil, session.ClosedEvent(session.Closing{By: home, State: session.ClosedAdopted}))
	intent := func(attempt uint64) session.Event {
		return event(KindStepStarted, StepStarted{Attempt: attempt, Call: "r1/4", Expires: 1_700_000_005_000, Input: "i", Name: "send", Path: "4", Run: "r1"})
	}
	commit(home, "r1", "4", nil, intent(1))
	h.writers, h.node = map[session.Key]*StateMachine{}, 1 // the node has crashed
	claim(home, Claim{Home: home, Run: "r1", Revision: "8"})
	do(home, run.ErrSuperseded, func(w *StateMachine) error {
		_, err := w.Commit(Batch{Session: home, Run: "r1", Attempt: 1, Path: "4", Events: []session.Event{event(KindStepCompleted, StepCompleted{Attempt: 1, Input: "i", Kind: StepTool, Name: "send", Path: "4", Run: "r1", Value: `{"ok":true}`})}}, h.now)
		return err
	})
	commit(home, "r1", "", nil, event(KindReview, Review{Attempt: 2, Call: "r1/4", Code: run.CodeReview, Name: "send", Path: "4", Reason: "cut off", Run: "r1"}))
	signal(Signal{To: home, Run: "r1", Resolve: &Resolved{By: "ops", Says: "ann", Decision: run.Again, Reason: "not sent"}})
	claim(home, Claim{Home: home, Run: "r1"})
	commit(home, "r1", "4", nil, intent(3))
	commit(home, "r1", "4", nil, event(KindStepCompleted, StepCompleted{Attempt: 3, Code: run.CodeTimeout, Effect: "non_idempotent", Error: "timed out", Input: "i", Kind: StepTool, Name: "send", Path: "4", Run: "r1"}))
	commit(home, "r1", "", nil, event(KindWarning, Warning{Run: "r1", Text: "careful"}))
	commit(home, "r1", "end", nil, event(KindEnded, Ended{Attempt: 3, Output: "hello", Run: "r1", State: run.Succeeded, Usage: session.Usage{Calls: 2}, Workflow: "w"}))
	claim(home, Claim{Home: home, Run: "r2"})
	commit(home, "r2", "0", nil, event(KindStepCompleted, StepCompleted{Attempt: 1, Input: "i", Kind: StepDo, Name: "n", Path: "0", Run: "r2", Value: "1"}))
	commit(home, "r2", "", nil, event(KindReleased, Released{Attempt: 1, Reason: "shutdown", Revision: "7", Run: "r2", Workflow: "w"}))
	signal(Signal{To: home, Run: "r3", Cancel: &CancelRequested{By: "ops", Says: "ann", Reason: "not needed"}})
	claim(home, Claim{Home: home, Run: "r2"})
	commit(home, "r2", "1", nil, event(KindStepStarted, StepStarted{Attempt: 2, Call: "r2/1", Expires: 1, Input: "i", Name: "send", Path: "1", Run: "r2"}))

	// A run with a fan-out, a question, a message and a quarantine.
	whole, fanned := session.Key{Tenant: "t", ID: "whole"}, session.Key{Tenant: "t", ID: "fanned"}
	r4 := &Task{ID: "r4", Workflow: "w", Revision: "7", Session: whole}
	claim(whole, Claim{Home: whole, Run: "r4", Task: r4, Open: session.Opening{Kind: session.OpenLeaf, Run: "r4"}, Events: []session.Event{session.ChunkEvent(session.UserText("go"))}})
	base, _ := h.writer(whole).Session().Link()
	out := FanOut{
		Ancestors: []Ancestor{{Run: "r4", Session: whole.ID}}, Base: base, Budget: run.Budget{Tokens: 500}, Path: "0", Revision: "7", Root: whole.ID, Run: "r4", Workflow: "w",
		Branches: []FanOutBranch{{Name: "a", Session: fanned.ID}, {Input: `{"x":1}`, Name: "b", Session: "remote", Workflow: "other"}},
	}
	branches := Wait{Branches: []session.ID{fanned.ID, "remote"}, Due: 1_700_000_900_000, Kind: run.WaitBranches, Need: 1, Path: "0.gather", Title: "waits for 2 branches"}
	commit(whole, "r4", "0", nil, event(KindFanOut, out), event(KindRunWaiting, RunWaiting{Attempt: 1, For: []Wait{branches}, Run: "r4"}),
		event(KindStepCompleted, StepCompleted{Attempt: 1, Input: "i", Kind: StepFanOut, Path: "0", Run: "r4", Value: `{"budget":{"tokens":500}}`}))
	branch4 := out.Tasks("t")[0]
	claim(fanned, Claim{Home: fanned, Run: branch4.ID, Task: &branch4, Root: whole.ID, Open: session.Opening{Kind: session.OpenFork, Name: "a", Parents: []session.Link{base}, Run: "r4", Step: "0.a"}})
	commit(fanned, branch4.ID, "end", nil, event(KindEnded, Ended{Attempt: 1, Run: branch4.ID, State: run.Succeeded, Workflow: "w"}))
	last := h.writer(fanned).At()
	report := SignalReceived{ID: "fanned", Kind: Report, Path: "0.gather", Branch: &BranchEnd{
		Link: session.Link{Ref: session.Ref{Key: fanned}, Seq: last.Seq, Hash: last.Hash, Token: last.Token}, State: run.Succeeded, Usage: session.Usage{Calls: 1},
	}}
	signal(Signal{To: whole, Run: "r4", Received: &report})
	claim(whole, Claim{Home: whole, Run: "r4"})
	commit(whole, "r4", "0.gather", nil, event(KindStepCompleted, StepCompleted{Attempt: 2, Input: "i", Kind: StepGather, Path: "0.gather", Run: "r4", Value: "[]"}),
		event(KindBranchOutcomes, BranchOutcomes{Run: "r4", Branches: []run.BranchOutcome{{Reason: "not needed", Session: "remote", State: session.ClosedCancelled}}}))
	signal(Signal{To: fanned, Run: "fanned", Close: &run.BranchOutcome{Session: fanned.ID, State: session.ClosedMerged}})
	question := Wait{Detail: "the notes", Kind: run.WaitApproval, Name: "send", Path: "1", Title: "send?"}
	commit(whole, "r4", "", nil, event(KindRunWaiting, RunWaiting{Attempt: 2, For: []Wait{question}, Revision: "r", Run: "r4"}))
	signal(Signal{To: whole, Received: &SignalReceived{By: "ana", ID: "m1", Interrupt: true, Kind: Message, Text: "be quick"}})
	signal(Signal{To: whole, Run: "r4", Received: &SignalReceived{By: "ana", Kind: Approve, Path: "1", Reason: "fine", Value: `{"to":"all"}`}})
	signal(Signal{To: whole, Quarantine: &Quarantined{By: "ops", Says: "ann", Reason: "odd"}})
	signal(Signal{To: whole, Quarantine: &Quarantined{By: "ops", Says: "ann", Reason: "looked at", Released: true}})
	claim(whole, Claim{Home: whole, Run: "r4"})
	signal(Signal{To: whole, Run: "r4", Rebudget: &Rebudgeted{Budget: run.Budget{Tokens: 9000}, By: "ops", Says: "ann", Reason: "it needs more"}})
	commit(whole, "r4", "", nil, event(KindReview, Review{Attempt: 3, Code: run.CodeMismatch, Path: "1", Reason: "other code", Revision: "7", Run: "r4"}))
	signal(Signal{To: whole, Run: "r4", Resolve: &Resolved{Decision: run.Pin, Reason: "as it began"}})
	claim(whole, Claim{Home: whole, Run: "r4", Revision: "7"})
	commit(whole, "r4", "1", nil, event(KindStepCompleted, StepCompleted{Attempt: 4, Inbox: 2, Input: "i", Kind: StepAwait, Path: "1", Run: "r4", Value: `{"approved":true}`}))

	// A fan-out whose first branch starts alone.
	out.Path, out.WarmFirst, out.Base = "2", true, base
	out.Branches = []FanOutBranch{{Name: "a", Session: "warming"}, {Name: "b", Session: "held"}}
	branches = Wait{Branches: []session.ID{"warming", "held"}, Kind: run.WaitBranches, Path: "2.gather"}
	commit(whole, "r4", "2", nil, event(KindFanOut, out), event(KindRunWaiting, RunWaiting{Attempt: 4, For: []Wait{branches}, Run: "r4"}),
		event(KindStepCompleted, StepCompleted{Attempt: 4, Input: "i", Kind: StepFanOut, Path: "2", Run: "r4", Value: `{"budget":{"tokens":500}}`}))
	warming := out.Tasks("t")[0]
	claim(warming.Session, Claim{Home: warming.Session, Run: warming.ID, Task: &warming, Root: whole.ID, Open: session.Opening{Kind: session.OpenFork, Name: "a", Parents: []session.Link{base}, Run: "r4", Step: "2.a"}})
	warmed := CacheWarmed{Parent: *warming.Branch.Parent(), Run: warming.ID}
	commit(warming.Session, warming.ID, "2.a.0", nil, chunk, event(KindCacheWarmed, warmed), event(KindStepCompleted, StepCompleted{Attempt: 1, Input: "i", Kind: StepModel, Name: "a", Path: "2.a.0", Row: true, Run: warming.ID}))
	signal(*warmed.signal("t"))
	spent := Spending{Steps: 2, Usage: session.Usage{Calls: 2, Input: 8}}
	signal(Signal{To: whole, Run: "r4", Settle: &Part{Counted: spent, From: fanned.ID, N: 1, Spent: spent.add(spent)}})
	return h
}

// TestGolden: the stored bytes of this release's runs, their fold, and the snapshots of
// this fold version never change.
func TestGolden(t *testing.T) {
	h := play(t)
	var stored bytes.Buffer
	kinds := map[string]bool{}
	for _, k := range h.log.Keys() {
		for e, err := range h.log.Read(t.Context(), k, commitlog.Position{}) {
			must.Do(t, err)
			stored.WriteString(e.Raw + "\n")
			for _, ev := range e.Commit.Events {
				kinds[ev.Kind] = true
			}
		}
	}
	for _, kind := range []string{
		KindWriter, KindSubmitted, KindClaimed, KindReleased, KindReview, KindResolved, KindCancel, KindWarning, KindEnded, KindStepStarted, KindStepCompleted, KindLate,
		KindRunWaiting, KindSignalReceived, KindFanOut, KindBranchOutcomes, KindQuarantined, KindRebudgeted, KindBranchesReleased, KindCacheWarmed, KindSettled,
	} {
		if !kinds[kind] {
			t.Errorf("the history has no %s", kind)
		}
	}
	file := golden(t, "schema1.commits.jsonl", stored.Bytes())
	home := h.keys[0]
	log, old := h.reads(t, file, "schema1.projection.json")

	// A snapshot that this fold version wrote once is still the same state.
	s, err := old.Snapshot()
	must.Do(t, err)
	state := golden(t, fmt.Sprintf("fold%d.snapshot.json", foldVersion), append(s.state, '\n'))
	must.Do(t, log.Save(t.Context(), home, old.At(), state))
	again, err := LoadStateMachine(t.Context(), log, NewValues(log), home, "reader")
	if err != nil || again.SinceSnapshot() != 0 {
		t.Fatalf("the old snapshot is not used: %d commits folded, %v; raise foldVersion if it cannot be", again.SinceSnapshot(), err)
	}
	h.same(old, again, "the old snapshot")
}

// reads folds stored commits and compares the result with a file.
func (h *theatre) reads(t *testing.T, file []byte, name string) (*commitlog.Memory, *StateMachine) {
	t.Helper()
	log := &commitlog.Memory{}
	for line := range bytes.Lines(file) {
		c, err := commitlog.Decode(bytes.TrimSuffix(line, []byte("\n")))
		must.Do(t, err)
		last, err := log.Last(t.Context(), c.Key)
		if err != nil && c.Seq > 1 {
			t.Fatal(err)
		}
		must.Get(log.Append(t.Context(), last.At, c))(t)
	}
	old := must.Get(LoadStateMachine(t.Context(), log, NewValues(log), h.keys[0], "reader"))(t)
	projection := must.Get(json.MarshalIndent(tokenless(h.show(old)), "", "\t"))(t)
	golden(t, name, append(projection, '\n'))
	return log, old
}

// tokenless drops the numbers that a log assigns.
func tokenless(w shownWriter) shownWriter {
	w.At.Token, w.Session.Link.Token, w.CommonLens, w.Joins = 0, 0, nil, nil
	return w
}
