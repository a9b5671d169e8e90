package events

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/messages"
)

// TestDraft joins deltas as a client gets them: the text of an aborted try is no part
// of the answer, and losses are reported.
func TestDraft(t *testing.T) {
	piece := func(try int, n uint64, text string) messages.Delta {
		return messages.Delta{Attempt: 1, Try: try, N: n, Text: text}
	}
	for name, c := range map[string]struct {
		deltas  []messages.Delta
		text    string
		dropped int
		cut     bool
	}{
		"one try":             {[]messages.Delta{piece(1, 1, "It is "), piece(1, 2, "seven.")}, "It is seven.", 0, false},
		"a try broke off":     {[]messages.Delta{piece(1, 1, "The answer is forty"), {Attempt: 1, Try: 1, N: 2, Void: true}, piece(2, 1, "It is seven.")}, "It is seven.", 1, false},
		"broke off unheard":   {[]messages.Delta{piece(1, 1, "forty"), piece(2, 1, "seven")}, "seven", 1, false},
		"void, and no more":   {[]messages.Delta{piece(1, 1, "forty"), {Attempt: 1, Try: 1, N: 2, Void: true}}, "", 1, false},
		"late after its void": {[]messages.Delta{piece(1, 1, "a"), {Attempt: 1, Try: 1, N: 3, Void: true}, piece(1, 2, "b"), piece(2, 1, "c")}, "c", 1, false},
		"void within a try":   {[]messages.Delta{piece(1, 1, "a thought"), {Attempt: 1, Try: 1, N: 2, Void: true}, piece(1, 3, "seven")}, "seven", 1, false},
		"a start":             {[]messages.Delta{piece(1, 1, "a"), {Attempt: 1, Start: &messages.StepStart{Kind: "model"}}, piece(1, 2, "b")}, "ab", 0, false},
		"of an older try":     {[]messages.Delta{piece(2, 1, "new"), piece(1, 9, "old")}, "new", 0, false},
		"another attempt":     {[]messages.Delta{piece(3, 1, "old"), {Attempt: 2, Try: 1, N: 1, Text: "new"}}, "new", 1, false},
		"twice":               {[]messages.Delta{piece(1, 1, "a"), piece(1, 1, "a"), piece(1, 2, "b")}, "ab", 0, false},
		"one is lost":         {[]messages.Delta{piece(1, 1, "a"), piece(1, 3, "c")}, "ac", 0, true},
		"the first is lost":   {[]messages.Delta{piece(1, 2, "b")}, "b", 0, true},
		"too much":            {[]messages.Delta{piece(1, 1, strings.Repeat("x", MaxDraft)), piece(1, 2, "y")}, strings.Repeat("x", MaxDraft), 0, true},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			var d Draft
			dropped := 0
			for _, x := range c.deltas {
				if d.Add(x) {
					dropped++
				}
			}
			if d.Text != c.text || dropped != c.dropped || d.Truncated != c.cut {
				t.Errorf("%.40q, dropped %d times, truncated %v; want %.40q, %d, %v", d.Text, dropped, d.Truncated, c.text, c.dropped, c.cut)
			}
		})
	}
	var d Draft
	for _, x := range []messages.Delta{
		{Attempt: 1, Try: 1, N: 1, Call: &messages.CallDelta{Index: 1, ID: "c1", Name: "grep", Args: `{"q":`}},
		{Attempt: 1, Try: 1, N: 2, Call: &messages.CallDelta{Index: 4, ID: "c2", Name: "list"}},
		{Attempt: 1, Try: 1, N: 3, Call: &messages.CallDelta{Index: 1, Args: `"x"}`}},
	} {
		d.Add(x)
	}
	if len(d.Calls) != 2 || d.Calls[0].Args != `{"q":"x"}` || d.Calls[1].Name != "list" {
		t.Errorf("calls %+v", d.Calls)
	}
}
