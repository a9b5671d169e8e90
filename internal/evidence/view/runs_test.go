package view

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/platform/term"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestNodeOf checks the node of each run that has one, in a table that fits in 80 columns
// up to the age with names of realistic length.
func TestNodeOf(t *testing.T) {
	names := map[string]string{"nABCDEFGHIJKL": "b", "nBCDEFGHIJKLM": "rath-node-10", "nCDEFGHIJKLMN": "rath-node-11"}
	var runs []messages.RunInfo
	for _, c := range []struct {
		state      run.State
		node, want string
	}{
		{run.Running, "nABCDEFGHIJKL", "b"},
		{run.Running, "nBCDEFGHIJKLM", "…node-10"},
		{run.Succeeded, "nCDEFGHIJKLMN", "…node-11"},
		{run.TimedOut, "nDEFGHIJKLMNO", "nDEFGHIJ"}, // its node no longer exists
		{run.Cancelled, "n1", "n1"},
		{run.Waiting, "nABCDEFGHIJKL", "-"},
		{run.NeedsReview, "nABCDEFGHIJKL", "-"},
		{run.Queued, "", "-"},
	} {
		r := messages.RunInfo{
			Run: "abcdefghijklmnopqrst", State: c.state, Workflow: "review-fix", Session: "0123456789abcdef0123-1-3", Node: c.node,
			Steps: 12345, Usage: session.Usage{Calls: 1, Input: 123_456}, Submitted: time.Now().Add(-40 * time.Hour).UnixMilli(), Reason: "because of what there is to say of it",
		}
		if got := NodeOf(&r, names); got != c.want || term.Width(got) > nodeColumns {
			t.Errorf("a run that is %s, on %q: %q, want %q", c.state, c.node, got, c.want)
		}
		runs = append(runs, r)
	}
	var out bytes.Buffer
	RunTable(term.New(&out, nil), runs, names, nil, false)
	for l := range strings.Lines(out.String()) {
		if head := term.Clip(l, 80); !strings.Contains(head, "AGE") && !strings.Contains(head, "  40h") {
			t.Errorf("80 columns do not show the age:\n%s", head)
		}
	}
}

// TestShortIDs checks that an id in a table identifies one of its runs.
func TestShortIDs(t *testing.T) {
	for _, c := range []struct{ ids, want []run.ID }{
		{nil, nil},
		{[]run.ID{"one", "one-r1", "two"}, []run.ID{"one", "one-r1", "two"}},
		{[]run.ID{"abcdefghijklmnopqrst", "bcdefghijklmnopqrstu"}, []run.ID{"abcdefghijkl", "bcdefghijklm"}},
		{
			[]run.ID{"bench-3r2ljzaaaa", "bench-3r2ljzabaa", "bench-3r2ljzbbbb", "x"},
			[]run.ID{"bench-3r2ljzaa", "bench-3r2ljzab", "bench-3r2ljzbb", "x"},
		},
		{ // a run and the runs derived from it
			[]run.ID{"abcdefghijklmnopqrst-r2", "abcdefghijklmnopqrst", "abcdefghijklmnopqrst-r1", "abcdefghijklmnopqrst"},
			[]run.ID{"abcdefghijklmnopqrst-r2", "abcdefghijklmnopqrst", "abcdefghijklmnopqrst-r1", "abcdefghijklmnopqrst"},
		},
	} {
		short := ShortIDs(c.ids)
		var got []run.ID
		for _, id := range c.ids {
			got = append(got, run.ID(short(id)))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q are written %q, want %q", c.ids, got, c.want)
		}
	}
}

// TestNotesOfRuns checks that the reason of a failed run is readable in a window of 80
// columns, and in the run's row if there is room.
func TestNotesOfRuns(t *testing.T) {
	headers := []string{"RUN", "STATE", "AGE", ""}
	rows := [][]string{{"abcdefghijkl", "failed", "40h"}, {"bcdefghijklm", "succeeded", "now"}}
	const why = "agent: there is no tool \"nosuch\": start the program that announces it"
	for _, c := range []struct {
		note  string
		width int
		want  [][]string
	}{
		{why, 200, [][]string{{"abcdefghijkl", "failed", "40h", term.Line(why, noteColumns)}, {"bcdefghijklm", "succeeded", "now", ""}}},
		{why, 80, [][]string{{"abcdefghijkl", "failed", "40h", ""}, {"  " + why}, {"bcdefghijklm", "succeeded", "now", ""}}},
		{why, 40, [][]string{{"abcdefghijkl", "failed", "40h", ""}, {"  " + term.Line(why, 38)}, {"bcdefghijklm", "succeeded", "now", ""}}},
		{"too slow", 80, [][]string{{"abcdefghijkl", "failed", "40h", "too slow"}, {"bcdefghijklm", "succeeded", "now", ""}}},
	} {
		got := withNotes(headers, rows, []string{c.note, ""}, c.width)
		if !slices.EqualFunc(got, c.want, slices.Equal[[]string]) {
			t.Errorf("%d columns, note %q: %q, want %q", c.width, c.note, got, c.want)
		}
	}
}
