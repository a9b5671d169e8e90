package lineage

import (
	"math"
	"regexp"
	"testing"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestCursorText writes and reads the cursors of readers of up to 64 partitions with the
// largest possible numbers, and checks that each cut or changed text is rejected.
func TestCursorText(t *testing.T) {
	plain := regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	for _, partitions := range []uint32{0, 1, 4, 64} {
		c := &Cursor{}
		c.Move(StoredAt{Seq: math.MaxInt64, Time: math.MaxInt64})
		for p := range partitions {
			c.TakeAll(1, p, math.MaxInt64)
		}
		text := c.String()
		t.Logf("%d partitions: %d bytes", partitions, len(text))
		if !plain.MatchString(text) || len(text) > MaxCursor || len(text) > 40+24*int(partitions) {
			t.Errorf("%d partitions: %d bytes: %s", partitions, len(text), text)
		}
		back, err := ParseCursor(text)
		if err != nil || back.String() != text || back.At() != c.At() {
			t.Errorf("%d partitions: %s is read as %v, %v", partitions, text, back, err)
		}
		for i := range text {
			other := byte('A')
			if text[i] == other {
				other = 'B'
			}
			for _, wrong := range []string{text[:i], text[:i] + string(other) + text[i+1:]} {
				if wrong == "" {
					continue
				}
				if _, err := ParseCursor(wrong); err == nil {
					t.Errorf("%s is read although %s was written", wrong, text)
				}
			}
		}
	}
	for _, text := range []string{"0", "1204", "end", "AQ", "é", "AQ=="} {
		if c, err := ParseCursor(text); err == nil {
			t.Errorf("%q is read as %v", text, c)
		}
	}
	if c, err := ParseCursor(""); err != nil || c.String() != "" {
		t.Errorf("the beginning is %v, %v", c, err)
	}
}

// TestCursorTake counts each record of an event stream once.
func TestCursorTake(t *testing.T) {
	c := &Cursor{}
	record := func(id session.ID, partition uint32, seq uint64, k int) *messages.Record {
		return &messages.Record{Session: id, Partition: partition, Seq: seq, K: k}
	}
	for _, r := range []struct {
		*messages.Record
		want bool
	}{
		{record("a-1-0", 0, 3, 0), true},
		{record("a-1-0", 0, 3, 0), false},
		{record("a-1-0", 0, 3, 1), true},
		{record("b-1-1", 1, 2, 4), true}, // of another event stream
		{record("a-2-0", 0, 1, 0), true}, // of another generation
		{record("c-1-0", 0, 2, 9), false},
		{record("c-1-0", 0, 5, 0), true},
		{record("a-1-0", 0, 4, 0), false},
	} {
		if got := c.Take(r.Record); got != r.want {
			t.Errorf("record %d.%d of %s: %v, want %v", r.Seq, r.K, r.Session, got, r.want)
		}
	}
	c.TakeAll(1, 0, 7)
	if c.Take(record("a-1-0", 0, 7, 99)) || !c.Take(record("a-1-0", 0, 8, 0)) {
		t.Error("all up to commit 7 are read")
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add("")
	f.Add("end")
	c := &Cursor{}
	c.Move(StoredAt{Seq: 5, Time: 6})
	c.TakeAll(1, 0, 7)
	f.Add(c.String())
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := ParseCursor(text); err == nil && c.String() != text {
			t.Errorf("%q is written as %q", text, c)
		}
	})
}
