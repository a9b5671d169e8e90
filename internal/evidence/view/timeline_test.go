package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// tree is a list of records of a tree below s1, one per commit.
type tree []messages.Record

func (t *tree) add(id session.ID, r messages.Record) {
	r.Session, r.Root, r.Tenant, r.Commit = id, "s1", "default", 1
	for _, before := range *t {
		if before.Session == id {
			r.Commit++
		}
	}
	*t = append(*t, r)
}

// of returns the records of one session.
func (t tree) of(id session.ID) tree {
	return slices.DeleteFunc(slices.Clone(t), func(r messages.Record) bool { return r.Session != id })
}

// demoRecords returns the records of a trunk and one rejected branch.
func demoRecords() tree {
	var all tree
	add := func(id session.ID, r messages.Record) {
		r.Run = "r1"
		all.add(id, r)
	}
	add("s1", messages.Record{Kind: messages.KindOpened})
	add("s1", messages.Record{Kind: messages.KindModel, Agent: "planner", Step: "1", Rows: 1, Summary: `planner says "two steps"`})
	add("s1", messages.Record{Kind: messages.KindBranched, Branches: []messages.Ref{{Session: "s2"}}})
	add("s2", messages.Record{Kind: messages.KindForked, Parents: []messages.Ref{{Session: "s1", Version: 1, Commit: 3}}})
	add("s2", messages.Record{Kind: messages.KindModel, Agent: "coder", Step: "3", Rows: 1, Calls: 1, Summary: "coder calls write"})
	add("s2", messages.Record{Kind: messages.KindTool, Tool: "write", Step: "3.0", Rows: 1, Summary: "coder writes a.txt", Agent: "coder"})
	add("s2", messages.Record{Kind: messages.KindModel, Agent: "coder", Step: "4", Rows: 1, Summary: `coder says "done"`})
	add("s2", messages.Record{Kind: messages.KindModel, Agent: "verifier", Step: "5", Rows: 1, Summary: `verifier says "no"`})
	add("s1", messages.Record{Kind: messages.KindRejected, State: "rejected", Reason: "it breaks", Branches: []messages.Ref{{Session: "s2", Commit: 5}}})
	add("s1", messages.Record{Kind: messages.KindEnded, State: "succeeded"})
	return all
}

func tellAll(t *testing.T, records tree) []string {
	t.Helper()
	var lines []string
	w := term.New(new(strings.Builder), nil)
	tell := NewTimeline(func(l Line) { lines = append(lines, LineText(w, l)) })
	for _, r := range records {
		tell.Add(t.Context(), r)
	}
	tell.Finish(t.Context())
	return lines
}

func TestTimeline(t *testing.T) {
	got := strings.Join(tellAll(t, demoRecords()), "\n")
	want := `s1  1 planner     "two steps"
  s2  fork of s1 at 1
    4 coder       writes a.txt
    5 verifier    REJECTED "it breaks"`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTimelineOfHostileText(t *testing.T) {
	hostile := "\x1b[2Jgone\x1b]0;t\x07 \u202eback\r\nnew line"
	records := demoRecords()
	for i := range records {
		records[i].Summary = hostile
		records[i].Reason = hostile
		records[i].Agent = "\x1b[31m" + records[i].Agent
	}
	for _, l := range tellAll(t, records) {
		if strings.ContainsAny(l, "\x1b\x07\r\n\u202e") {
			t.Errorf("%q steers the terminal", l)
		}
		if term.Width(l) > 80 {
			t.Errorf("%q is wider than 80 columns", l)
		}
	}
}

// TestTimelineOfManyBranches writes the interleaved lines of concurrent branches, and of a
// run that resumes after a wait.
func TestTimelineOfManyBranches(t *testing.T) {
	var all tree
	add := all.add
	add("s1", messages.Record{Kind: messages.KindOpened, Run: "r1"})
	add("s1", messages.Record{Kind: messages.KindFannedOut, Run: "r1", Step: "1", Summary: "fans out into 3 branches: a, b, c"})
	for _, id := range []session.ID{"s2", "s3", "s4"} {
		add(id, messages.Record{Kind: messages.KindForked, Run: "r" + runOf(id), Parents: []messages.Ref{{Session: "s1", Commit: 2}}})
	}
	for _, id := range []session.ID{"s2", "s3", "s4"} {
		add(id, messages.Record{Kind: messages.KindModel, Run: "r" + runOf(id), Agent: "coder", Step: "0", Rows: 1, Calls: 1})
	}
	for _, id := range []session.ID{"s3", "s2", "s4"} {
		add(id, messages.Record{Kind: messages.KindTool, Run: "r" + runOf(id), Tool: "write", Step: "0.0", Rows: 1, Summary: "coder writes a.txt", Agent: "coder"})
	}
	for _, id := range []session.ID{"s2", "s3"} {
		add(id, messages.Record{Kind: messages.KindModel, Run: "r" + runOf(id), Agent: "coder", Step: "1", Rows: 1, Summary: `coder says "done"`})
	}
	add("s4", messages.Record{Kind: messages.KindClaimed, Run: "r4", Attempt: 2, Summary: "run resumes, attempt 2"}) // its node died
	add("s4", messages.Record{Kind: messages.KindModel, Run: "r4", Agent: "coder", Step: "1", Rows: 1, Summary: `coder says "done"`})
	add("s1", messages.Record{Kind: messages.KindReported, Run: "r1", Wake: 1, Summary: "branch s4 succeeded"})
	add("s1", messages.Record{Kind: messages.KindClaimed, Run: "r1", Attempt: 2, Summary: "run resumes, attempt 2"})
	add("s1", messages.Record{Kind: messages.KindGathered, Run: "r1", Step: "1.gather", Summary: "3 of 3 branches joined"})
	add("s1", messages.Record{Kind: messages.KindMerged, Run: "r1", Step: "2", Rows: 3, Parents: []messages.Ref{{Session: "s2", Commit: 4}, {Session: "s3", Commit: 4}, {Session: "s4", Commit: 5}}})
	add("s1", messages.Record{Kind: messages.KindAnswered, Run: "r1", Wake: 2, Summary: "ann approves"})
	add("s1", messages.Record{Kind: messages.KindClaimed, Run: "r1", Attempt: 3, Summary: "run resumes, attempt 3"})
	add("s1", messages.Record{Kind: messages.KindAwaited, Run: "r1", Step: "3", Summary: "workflow approved by ann"})
	add("s1", messages.Record{Kind: messages.KindClaimed, Run: "r1", Attempt: 4, Summary: "run resumes, attempt 4"}) // no wake: its node died
	add("s1", messages.Record{Kind: messages.KindEnded, Run: "r1", State: "succeeded"})
	got := strings.Join(tellAll(t, all), "\n")
	want := `s1    workflow    fans out into 3 branches: a, b, c
  s2  fork of s1 at 0
  s3  fork of s1 at 0
  s4  fork of s1 at 0
s3  2 coder       writes a.txt
s2  2 coder       writes a.txt
s4  2 coder       writes a.txt
s2  3 coder       "done"
s3  3 coder       "done"
s4  2 run         resumes, attempt 2
    3 coder       "done"
s1    workflow    3 of 3 branches joined
    3 workflow    MERGED s2, s3, s4
    3 workflow    approved by ann
    3 run         resumes, attempt 4`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTimelineFoldsBranches checks that the timeline shows a few branches of a large
// fan-out, and only the failures of the others.
func TestTimelineFoldsBranches(t *testing.T) {
	var all tree
	add := all.add
	var branches []messages.Ref
	for i := range 12 {
		branches = append(branches, messages.Ref{Session: session.ID(fmt.Sprint("s", i+2))})
	}
	add("s1", messages.Record{Kind: messages.KindOpened, Run: "r1"})
	add("s1", messages.Record{Kind: messages.KindFannedOut, Run: "r1", Step: "1", Summary: "fans out into 12 branches", Branches: branches})
	for _, b := range branches {
		add(b.Session, messages.Record{Kind: messages.KindForked, Run: "r" + runOf(b.Session), Parents: []messages.Ref{{Session: "s1", Commit: 2}}})
		add(b.Session, messages.Record{Kind: messages.KindModel, Run: "r" + runOf(b.Session), Agent: "coder", Step: "0", Rows: 1, Summary: `coder says "done"`})
		state := "succeeded"
		if b.Session == "s10" {
			state = "failed"
		}
		add(b.Session, messages.Record{Kind: messages.KindEnded, Run: "r" + runOf(b.Session), State: state, Summary: "run " + state})
	}
	add("s1", messages.Record{Kind: messages.KindRejected, Run: "r1", Step: "2", Branches: []messages.Ref{{Session: "s3", Commit: 3}, {Session: "s12", Commit: 3}}, State: "rejected"})
	add("s1", messages.Record{Kind: messages.KindEnded, Run: "r1", State: "succeeded"})
	got := strings.Join(tellAll(t, all), "\n")
	want := `s1    workflow    fans out into 12 branches
  ...  of 6 more branches only what goes wrong or asks
  s2  fork of s1 at 0
    1 coder       "done"
  s3  fork of s1 at 0
    1 coder       "done"
  s4  fork of s1 at 0
    1 coder       "done"
  s5  fork of s1 at 0
    1 coder       "done"
  s6  fork of s1 at 0
    1 coder       "done"
  s7  fork of s1 at 0
    1 coder       "done"
s10 1 run         failed
s3  1 coder       REJECTED`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// runOf returns the id of the run that works on a session.
func runOf(id session.ID) run.ID { return run.ID(strings.TrimPrefix(string(id), "s")) }

// TestLineKeepsWordsApart checks that a space separates the tenth session from its tenth
// version.
func TestLineKeepsWordsApart(t *testing.T) {
	w := term.New(io.Discard, nil)
	for want, l := range map[string]Line{
		"s9  4 agent       done":  {Label: "s9", Version: 4, Actor: "agent", Text: "done"},
		"s9 12 agent       done":  {Label: "s9", Version: 12, Actor: "agent", Text: "done"},
		"s10 4 agent       done":  {Label: "s10", Version: 4, Actor: "agent", Text: "done"},
		"s10 12 agent       done": {Label: "s10", Version: 12, Actor: "agent", Text: "done"},
		"s10   agent       done":  {Label: "s10", Actor: "agent", Text: "done"},
	} {
		if got := LineText(w, l); got != want {
			t.Errorf("%+v reads %q, want %q", l, got, want)
		}
	}
}

// TestTimelineHoldsBack checks that records are written after the records they refer to, in
// any order of arrival.
func TestTimelineHoldsBack(t *testing.T) {
	records := demoRecords()
	want := tellAll(t, records)
	if len(want) == 0 {
		t.Fatal("no lines")
	}
	// All records of s2 arrive before those of s1.
	got := tellAll(t, slices.Concat(records.of("s2"), records.of("s1")))
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("out of order:\n%s\nin order:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
