package work

import (
	"testing"

	"github.com/rathcluster/rath/messages"
)

// TestMessage: names that an agent chose never form a trailer of a commit.
func TestMessage(t *testing.T) {
	c := &commits{run: &messages.Result{Run: "one"}}
	got := c.message("Branch x\nRath-Run: two", "a.txt\n\nRath-Session: s9\r\x1b[2J", "s1:4", "hash")
	want := "Branch x Rath-Run: two\n\na.txt Rath-Session: s9\ufffd\n\nRath-Run: one\nRath-Session: s1:4\nRath-Chain-Head: hash\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
