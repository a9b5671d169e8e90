package journal_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

var home = session.Key{Tenant: "t", ID: "home"}

func fullTask() journal.Task {
	return journal.Task{
		ID: "r1", Workflow: "w", Revision: "7", Session: home, Input: json.RawMessage(`{"x": 1.50}`), Model: "m", Tools: []string{"b", "a"},
		Workspace: blob.Digest{3}, Budget: run.Budget{MicroUSD: 1, Steps: 2, Time: 3, Tokens: 4},
		Deadline: time.UnixMilli(1_900_000_000_123).UTC(), NotBefore: time.UnixMilli(1_800_000_000_456).UTC(),
		ForkOf: &session.Ref{Key: session.Key{Tenant: "t", ID: "other"}, Version: 9},
	}
}

// TestTaskDigest: a change of any field makes another task.
func TestTaskDigest(t *testing.T) {
	seen := map[string]string{}
	add := func(name string, change func(*journal.Task)) {
		task := fullTask()
		change(&task)
		d := task.Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[d] = name
	}
	add("the task", func(*journal.Task) {})
	add("another id", func(t *journal.Task) { t.ID = "r2" })
	add("another workflow", func(t *journal.Task) { t.Workflow = "v" })
	add("another revision", func(t *journal.Task) { t.Revision = "8" })
	add("another tenant", func(t *journal.Task) { t.Session.Tenant = "u" })
	add("another input", func(t *journal.Task) { t.Input = json.RawMessage(`{"x":1.50}`) })
	add("another model", func(t *journal.Task) { t.Model = "n" })
	add("other tools", func(t *journal.Task) { t.Tools = []string{"a", "b"} })
	add("another workspace", func(t *journal.Task) { t.Workspace = blob.Digest{4} })
	add("another budget", func(t *journal.Task) { t.Budget.Tokens++ })
	add("another deadline", func(t *journal.Task) { t.Deadline = t.Deadline.Add(time.Millisecond) })
	add("another start", func(t *journal.Task) { t.NotBefore = time.Time{} })
	add("another base", func(t *journal.Task) { t.ForkOf = nil })
	same := fullTask()
	same.Resume = true
	if seen[same.Digest()] != "the task" {
		t.Error("an offer of a task has another digest than the task")
	}
	// A node of a release that does not record the place of branches derives the same.
	branch := fullTask()
	branch.Branch = &journal.Branch{Name: "a"}
	before := branch.Digest()
	if branch.Branch.Within = []string{"w"}; branch.Digest() != before || branch.Branch.Within == nil {
		t.Error("where a branch lies makes it another task")
	}
}

func TestTaskValid(t *testing.T) {
	must.Do(t, fullTask().Valid())
	for name, change := range map[string]func(*journal.Task){
		"no id":           func(t *journal.Task) { t.ID = "" },
		"a bad id":        func(t *journal.Task) { t.ID = "a.b" },
		"no workflow":     func(t *journal.Task) { t.Workflow = "" },
		"a bad tenant":    func(t *journal.Task) { t.Session.Tenant = "*" },
		"no session":      func(t *journal.Task) { t.Session.ID = "" },
		"too large input": func(t *journal.Task) { t.Input = make([]byte, run.MaxInput+1) },
	} {
		task := fullTask()
		change(&task)
		if err := task.Valid(); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestTaskSurvives: a log records the complete task.
func TestTaskSurvives(t *testing.T) {
	log := &commitlog.Memory{}
	task := fullTask()
	must.Get(journal.NewStore(log, nil).Claim(t.Context(), journal.Claim{Session: home, Home: home, Run: "r1", Task: &task, Open: session.Opening{Kind: session.OpenLeaf}}))(t)
	g := must.Get(journal.NewStore(log, nil).Claim(t.Context(), journal.Claim{Session: home, Home: home, Run: "r1"}))(t)
	if diff := cmp.Diff(task, g.Record.Task); diff != "" {
		t.Errorf("the task differs (-submitted +claimed):\n%s", diff)
	}
}

func TestComparePaths(t *testing.T) {
	want := []run.Path{"0", "1", "1.0", "1.0.a", "1.2", "1.10", "1.a", "1.b", "2", "2.fast.0", "2.fast.1", "2.slow", "10", "a"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, run.ComparePaths)
	if !slices.Equal(got, want) {
		t.Errorf("sorted as %v, want %v", got, want)
	}
	if p := run.Path("").Index(2).Child("fast").Index(0); p != "2.fast.0" {
		t.Errorf("path %s", p)
	}
}

func ev(t *testing.T, kind string, payload any) session.Event {
	t.Helper()
	e := must.Get(journal.NewEvent(kind, payload))(t)
	return e
}

// TestFollowupsRefuse: an unreadable commit has no follow-ups. The follow-ups of each
// commit are in the transcripts.
func TestFollowupsRefuse(t *testing.T) {
	for _, kind := range []string{journal.KindSubmitted, journal.KindClaimed, journal.KindReleased, journal.KindResolved, journal.KindEnded} {
		for _, bad := range []session.Event{{Kind: kind, Schema: 1, Data: "[]"}, {Kind: kind, Schema: 3, Data: "{}"}} {
			c := commitlog.Commit{Key: home, Events: []session.Event{bad}}
			if w, err := journal.Followups(commitlog.Entry{Commit: c}, journal.Facts(c)); err == nil {
				t.Errorf("%s %s of schema %d: %v", kind, bad.Data, bad.Schema, w)
			}
		}
	}
}

func TestEventsAreCanonical(t *testing.T) {
	big := strings.Repeat("z", 3)
	for kind, payload := range map[string]any{
		journal.KindWriter: journal.WriterOpened{Epoch: 1, Incarnation: big}, journal.KindClaimed: journal.Claimed{Home: home, Run: "r", Workflow: "w", Revision: "7", Attempt: 1, Epoch: 2, Incarnation: "n"},
		journal.KindReleased: journal.Released{Next: &journal.Offer{Run: "r", Workflow: "w", Revision: "1"}, Reason: "x", Workflow: "w", Run: "r"},
		journal.KindReview:   journal.Review{Call: "c", Code: "d", Name: "n", Path: "p", Reason: "r", Run: "x"}, journal.KindResolved: journal.Resolved{By: "b", Value: "1", Workflow: "w"},
		journal.KindEnded: journal.Ended{Children: []session.ID{"a"}, Result: &session.Link{}, Usage: session.Usage{Calls: 1}}, journal.KindStepStarted: journal.StepStarted{Expires: 1},
		journal.KindStepCompleted: journal.StepCompleted{Links: []session.Link{{}}, Usage: session.Usage{Input: 1}, Row: true, Value: `{"b":1.5,"a":2}`, HeadAfter: blob.Digest{1}, Prompt: blob.Digest{2}},
	} {
		e := ev(t, kind, payload)
		if _, err := commitlog.Encode(commitlog.Commit{Key: home, Root: "r", Seq: 1, Events: []session.Event{e}}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := journal.NewEvent("run.x", struct{ F float64 }{1.5}); err == nil {
		t.Error("an event with a float is encoded")
	}
}
