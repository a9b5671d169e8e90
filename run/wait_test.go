package run

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rathcluster/rath/session"
)

// TestExpiring: what only somebody outside can end gets an expiry, unless it has
// one. Timers and branches get none.
func TestExpiring(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	given := Suspended{For: []Wait{
		{Kind: WaitApproval}, {Kind: WaitResponse}, {Kind: WaitMessage}, {Kind: WaitTimer}, {Kind: WaitBranches}, {Kind: WaitApproval, Due: 7},
	}}
	two := now.Add(14 * 24 * time.Hour).UnixMilli()
	for i, want := range []int64{two, two, two, 0, 0, 7} {
		if got := given.expiring(now).For[i]; got.Due != want {
			t.Errorf("%s (due %d) is due at %d, want %d", got.Kind, given.For[i].Due, got.Due, want)
		}
	}
	if given.For[0].Due != 0 {
		t.Error("what was given is changed")
	}
}

// TestFormerWait: a question of a log that gave it no expiry stands, and is
// answered.
func TestFormerWait(t *testing.T) {
	file, err := os.ReadFile(filepath.Join("testdata", "golden", "former2.commits.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	log := &session.MemoryLog{}
	var asked session.Key
	for line := range bytes.Lines(file) {
		c, err := session.Decode(bytes.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		last, err := log.Last(t.Context(), c.Key)
		if err != nil && c.Seq > 1 {
			t.Fatal(err)
		}
		if c.Key == asked {
			continue // what came after the question
		}
		if _, err := log.Append(t.Context(), last.At, c); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(line, []byte(`"kind":"approval"`)) {
			asked = c.Key
		}
	}
	store := Direct(log, &DirectOptions{Now: func() time.Time { return time.UnixMilli(1_700_000_000_000).AddDate(10, 0, 0) }})
	if err := store.Apply(t.Context(), Signal{To: asked, Tick: true}); !errors.Is(err, ErrState) {
		t.Errorf("ten years later: %v", err)
	}
	if err := store.Apply(t.Context(), Signal{To: asked, Run: "r4", Received: &Received{Kind: Approve, Path: "1"}}); err != nil {
		t.Error(err)
	}
}
