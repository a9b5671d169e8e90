package flow

import (
	"slices"
	"testing"
)

// TestChoices: an answer resolves the conflicts that have a line of their own in it.
func TestChoices(t *testing.T) {
	for answer, want := range map[string][]string{
		"1. ours\n2: theirs, it is shorter.\n3) BOTH":      {"ours", "theirs it is shorter", "both"},
		"Let me see.\n\n**2** - theirs (safer)\n1 -> both": {"both", "theirs safer", ""},
		"1. ours\n1. theirs\n9. both\n0. both\n-1: ours":   {"ours", "", ""},
		"I take ours for 1.\nours\n2. mine\n3. oursish\n":  {"", "", ""},
		"": {"", "", ""},
		"99999999999999999999. ours\n3. theirs\x00 and more": {"", "", "theirs and more"},
	} {
		got := choicesOf(answer, 3)
		if !slices.Equal(got, want) {
			t.Errorf("%q decides %q, want %q", answer, got, want)
		}
	}
}
