package main

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/term"
	"github.com/rathcluster/rath/lineage"
	"github.com/rathcluster/rath/session"
)

type told1 struct{ lineage.Record }

func (t told1) of() session.ID { return t.Session }

// demoRecords is a story of a trunk and one rejected branch.
func demoRecords() []told1 {
	var all []told1
	commits := map[session.ID]uint64{}
	add := func(id session.ID, r lineage.Record) {
		commits[id]++
		r.Session, r.Root, r.Tenant, r.Run, r.Commit = id, "s1", "default", "r1", commits[id]
		all = append(all, told1{r})
	}
	add("s1", lineage.Record{Kind: lineage.Opened})
	add("s1", lineage.Record{Kind: lineage.Model, Agent: "planner", Step: "1", Rows: 1, Summary: `planner says "two steps"`})
	add("s1", lineage.Record{Kind: lineage.Branched, Branches: []lineage.Ref{{Session: "s2"}}})
	add("s2", lineage.Record{Kind: lineage.Forked, Parents: []lineage.Ref{{Session: "s1", Version: 1, Commit: 3}}})
	add("s2", lineage.Record{Kind: lineage.Model, Agent: "coder", Step: "3", Rows: 1, Calls: 1, Summary: "coder calls write"})
	add("s2", lineage.Record{Kind: lineage.Tool, Tool: "write", Step: "3.0", Rows: 1, Summary: "coder writes a.txt", Agent: "coder"})
	add("s2", lineage.Record{Kind: lineage.Model, Agent: "coder", Step: "4", Rows: 1, Summary: `coder says "done"`})
	add("s2", lineage.Record{Kind: lineage.Model, Agent: "verifier", Step: "5", Rows: 1, Summary: `verifier says "no"`})
	add("s1", lineage.Record{Kind: lineage.Rejected, State: "rejected", Reason: "it breaks", Branches: []lineage.Ref{{Session: "s2", Commit: 5}}})
	add("s1", lineage.Record{Kind: lineage.Ended, State: "succeeded"})
	return all
}

func tellAll(t *testing.T, records []told1) []string {
	t.Helper()
	var lines []string
	w := term.New(new(strings.Builder), nil)
	tell := newTeller(func(l storyLine) { lines = append(lines, storyText(w, l)) })
	for _, r := range records {
		tell.add(t.Context(), r.Record)
	}
	tell.finish(t.Context())
	return lines
}

func TestStory(t *testing.T) {
	got := strings.Join(tellAll(t, demoRecords()), "\n")
	want := `s1  1 planner     "two steps"
  s2  fork of s1 at 1
    4 coder       writes a.txt
    5 verifier    REJECTED "it breaks"`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestStoryOfHostileText(t *testing.T) {
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
