package session

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/testkit/must"
)

// TestMade: a chunk is folded from the event that was made of it as it is from a
// stored one, also where its texts were no text; and so is an opening.
func TestMade(t *testing.T) {
	const bad = "a\xffb"
	at := time.UnixMilli(7).UTC()
	for i, c := range []Chunk{
		{},
		fullChunk(),
		UserText("plain"),
		UserText(bad),
		Result(bad, bad, bad, true).WithArgs(bad).WithOpaque(bad),
		AssistantText(bad, ToolCall{bad, bad, bad}).WithImages(Image{blob.Digest{1}, 2, bad}),
		UserText("x").Of(Origin{bad, bad, bad, bad, bad, at, Placement{bad, 1, blob.Digest{2}, bad, bad, bad, bad, bad, bad}, Usage{Calls: 1}}),
	} {
		e := ChunkEvent(c)
		if e.Made() == nil || e.Of(nil).Made() != nil {
			t.Fatalf("chunk %d: made of %v", i, e.Made())
		}
		e.Time = at
		open := Open(Key{"t", "s"}, "s")
		made := must.Get(Apply(open, e, nil))(t)
		stored := must.Get(Apply(open, e.Of(nil), nil))(t)
		got, _ := made.At(0)
		want, _ := stored.At(0)
		if len(got.c.calls) == 0 {
			got.c.calls = nil // as none are stored
		}
		if diff := cmp.Diff(*want.c, *got.c, cmp.AllowUnexported(row{}, origin{})); diff != "" {
			t.Errorf("chunk %d differs (-stored +made):\n%s", i, diff)
		}
		if made.Placement() != stored.Placement() || made.Usage() != stored.Usage() {
			t.Errorf("chunk %d: %v, %v, want %v, %v", i, made.Placement(), made.Usage(), stored.Placement(), stored.Usage())
		}
		if again := ChunkEvent(want); again.Data != e.Data {
			t.Errorf("chunk %d changed on its way:\n%s\n%s", i, e.Data, again.Data)
		}
	}
	opened := OpenedEvent(Opening{Kind: OpenFork, Name: bad, Parents: []Link{{Ref: Ref{Key{"t", "p"}, 1}, Seq: 2}}, Run: bad, Source: bad, Step: bad})
	made, madeErr := DecodeOpening(opened)
	stored, storedErr := DecodeOpening(opened.Of(nil))
	if diff := cmp.Diff(stored, made); diff != "" || madeErr != nil || storedErr != nil {
		t.Errorf("an opening differs (-stored +made):\n%s%v, %v", diff, storedErr, madeErr)
	}
	e, other := ChunkEvent(UserText("x")), ChunkEvent(UserText("y"))
	if e.Data = other.Data; e.Made() != nil || !e.Equal(other) {
		t.Error("an event with other data is still made of the former chunk")
	}
	if c, err := DecodeChunk(e); err != nil || c.Text() != "y" {
		t.Errorf("it reads as %q, %v", c.Text(), err)
	}
}

// TestTextsAreHeldOnce: a committed chunk has the text and the placement that it was made
// with, and not copies of them.
func TestTextsAreHeldOnce(t *testing.T) {
	s := Open(Key{"t", "s"}, "s")
	var texts []string
	for i := range 3 {
		texts = append(texts, fmt.Sprintf("\"text\" %d", i))
		c := UserText(texts[i]).Of(Origin{Placement: Placement{Backend: "local", Spec: "x"}})
		var err error
		if s, err = Apply(s, ChunkEvent(c), nil); err != nil {
			t.Fatal(err)
		}
	}
	first, _ := s.At(0)
	for i, c := range s.Chunks() {
		if unsafe.StringData(c.Text()) != unsafe.StringData(texts[i]) {
			t.Errorf("chunk %d has a copy of its text", i)
		}
		if c.c.placement == nil || c.c.placement != first.c.placement {
			t.Errorf("chunk %d has a placement of its own", i)
		}
	}
}
