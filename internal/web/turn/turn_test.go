package turn_test

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/web/turn"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// piece is a delta of the run.
func piece(step run.Path, attempt uint64, try int, n uint64, text string) messages.Delta {
	return messages.Delta{Run: "r", Session: "s", Step: step, Attempt: attempt, Try: try, N: n, Text: text}
}

// TestFold: the text that passes only grows, whatever becomes void, and ends with the
// recorded text.
func TestFold(t *testing.T) {
	started := func(step run.Path, kind string) messages.Delta {
		return messages.Delta{Run: "r", Session: "s", Step: step, Attempt: 1, Start: &messages.StepStart{Kind: kind}}
	}
	void := messages.Delta{Run: "r", Session: "s", Step: "0", Attempt: 1, Try: 1, N: 3, Void: true}
	for name, tc := range map[string]struct {
		deltas       []messages.Delta
		text         string // recorded
		passed, rest string
	}{
		"one answer":             {[]messages.Delta{started("0", "model"), piece("0", 1, 1, 1, "a"), piece("0", 1, 1, 2, "b")}, "ab", "ab", ""},
		"two answers":            {[]messages.Delta{piece("0", 1, 1, 1, "a"), started("1.0", "tool"), piece("1.0", 1, 1, 1, "out"), piece("2", 1, 1, 1, "b")}, "a\n\nb", "a\n\nb", ""},
		"a repetition":           {[]messages.Delta{piece("0", 1, 1, 1, "a"), piece("0", 1, 1, 1, "a"), piece("0", 1, 1, 2, "b")}, "ab", "ab", ""},
		"a gap":                  {[]messages.Delta{piece("0", 1, 1, 1, "a"), piece("0", 1, 1, 3, "c")}, "abc", "a", "bc"},
		"a late reader":          {[]messages.Delta{piece("0", 1, 1, 2, "b"), piece("0", 1, 1, 3, "c")}, "abc", "", "abc"},
		"a try with the same":    {[]messages.Delta{piece("0", 1, 1, 1, "ab"), piece("0", 1, 2, 1, "a"), piece("0", 1, 2, 2, "bc")}, "abc", "abc", ""},
		"a try with another":     {[]messages.Delta{piece("0", 1, 1, 1, "ab"), piece("0", 1, 2, 1, "x")}, "xy", "ab", turn.Replaced + "xy"},
		"an attempt":             {[]messages.Delta{piece("0", 1, 1, 1, "a"), piece("2", 1, 1, 1, "b"), piece("2", 2, 1, 1, "bc")}, "a\n\nbc", "a\n\nbc", ""},
		"an older attempt":       {[]messages.Delta{piece("0", 2, 1, 1, "a"), piece("0", 1, 1, 1, "x"), piece("0", 2, 1, 2, "b")}, "ab", "ab", ""},
		"thought":                {[]messages.Delta{piece("0", 1, 1, 1, "a"), piece("0", 1, 1, 2, "b"), void, piece("0", 1, 1, 4, "abc")}, "abc", "abc", ""},
		"steps at the same time": {[]messages.Delta{piece("0.a", 1, 1, 1, "a"), piece("0.b", 1, 1, 1, "b"), piece("0.a", 1, 1, 2, "c")}, "ac\n\nb", "a\n\nb", turn.Replaced + "ac\n\nb"},
		"another session":        {[]messages.Delta{piece("0", 1, 1, 1, "a"), {Run: "r", Session: "other", Step: "1", Attempt: 1, Try: 1, N: 1, Text: "x"}}, "a", "a", ""},
	} {
		f := turn.Fold{Run: "r"}
		var passed strings.Builder
		for i := range tc.deltas {
			if e, ok := f.Add(client.Update{Delta: &tc.deltas[i]}); ok {
				passed.WriteString(e.Text)
			}
		}
		rest := f.Finish(tc.text)
		if passed.String() != tc.passed || rest != tc.rest || f.Sent() != passed.String()+rest {
			t.Errorf("%s: %q and %q, want %q and %q", name, passed.String(), rest, tc.passed, tc.rest)
		}
	}
}

// TestAsked: a question and the end are events; other records are none.
func TestAsked(t *testing.T) {
	f := turn.Fold{Run: "r"}
	for _, tc := range []struct {
		update client.Update
		asks   int
		end    bool
	}{
		{client.Update{Event: &messages.Record{Kind: messages.KindClaimed}}, 0, false},
		{client.Update{Event: &messages.Record{Kind: messages.KindWaiting, Waits: []messages.Wait{{Kind: run.WaitTimer}}}}, 0, false},
		{client.Update{Event: &messages.Record{Kind: messages.KindWaiting, Waits: []messages.Wait{{Kind: run.WaitTimer}, {Kind: run.WaitApproval}}}}, 1, false},
		{client.Update{Event: &messages.Record{Kind: messages.KindReview, Reason: "cut off"}}, 1, false},
		{client.Update{Result: &messages.Result{}}, 0, true},
	} {
		e, ok := f.Add(tc.update)
		if ok != (tc.asks > 0 || tc.end) || len(e.Asks) != tc.asks || (e.End != nil) != tc.end {
			t.Errorf("%+v: %+v, %v", tc.update, e, ok)
		}
	}
}

// TestText: the rows of a run begin with its first one; a row of no step counts from the
// first claim on.
func TestText(t *testing.T) {
	rows := []messages.Chunk{
		{Kind: session.Assistant, Text: "before", Run: "q", Time: 1},
		{Kind: session.Assistant, Text: "unmarked", Time: 2},
		{Kind: session.User, Text: "hello", Time: 5},
		{Kind: session.Assistant, Text: "a", Run: "r", Time: 6},
		{Kind: session.Assistant, Text: "merged", Run: "branch", Time: 4},
	}
	if got := turn.Text(rows[turn.Begin("r", 5, rows):]); got != "a\n\nmerged" {
		t.Errorf("%q", got)
	}
	if got := turn.Begin("other", 9, rows); got != len(rows) {
		t.Errorf("a run without rows begins at %d", got)
	}
}
