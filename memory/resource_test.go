package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/memory"
)

// counted counts the changes of a store.
type counted struct {
	memory.Store
	writes, deletes int
	fail            int // the write that fails, from one on
}

var errAway = errors.New("away")

func (c *counted) Write(ctx context.Context, uri, text string, from memory.Origin) error {
	if c.writes++; c.writes == c.fail {
		return errAway
	}
	return c.Store.Write(ctx, uri, text, from)
}

func (c *counted) Delete(ctx context.Context, uri string) error {
	c.deletes++
	return c.Store.Delete(ctx, uri)
}

// TestAddResource splits a text into passages of bounded size whose concatenation is the
// text, each with its origin; another text replaces it, even after an interrupted call;
// other notes stay.
func TestAddResource(t *testing.T) {
	const uri = "memory://resources/docs/guide.md"
	from := memory.Origin{Run: "r1", Session: "s1"}
	paragraph := strings.Repeat("A sentence of the guide about slugs. ", 20) + "\n\n"
	long := "# Guide\n\n" + strings.Repeat(paragraph, 12) + strings.Repeat("漢字", 3000) + "\n" + strings.Repeat("\n", 5000) + "The end about aardvarks."
	s := &counted{Store: notebook.New(nil)}
	for _, beside := range []string{uri, uri + "/notes", uri + "/1", "memory://resources/docs/other/000099"} {
		must.Do(t, s.Write(t.Context(), beside, "stays", memory.Origin{}))
	}
	add := func(text string) int {
		t.Helper()
		n := must.Get(memory.AddResource(t.Context(), s, uri, []byte(text), from))(t)
		return n
	}
	text := func(n int) string {
		t.Helper()
		var b strings.Builder
		for i := range n {
			part := must.Get(s.Read(t.Context(), fmt.Sprintf("%s/%06d", uri, i)))(t)
			b.WriteString(part)
		}
		return b.String()
	}
	n := add(long)
	if got := text(n); got != long || n < 12 {
		t.Errorf("%d passages of %d bytes, want %d", n, len(got), len(long))
	}
	hits, err := s.Find(t.Context(), memory.Query{Text: "aardvark"})
	if err != nil || len(hits) != 1 || hits[0].Origin != from || !strings.HasPrefix(hits[0].URI, uri+"/") {
		t.Errorf("found %+v: %v", hits, err)
	}
	if again := add(long); again != n || s.deletes != 0 {
		t.Errorf("the same again makes %d passages of %d and removes %d", again, n, s.deletes)
	}
	s.writes, s.fail = 0, 2
	if done, err := memory.AddResource(t.Context(), s, uri, []byte(strings.Repeat(paragraph, 8)), from); !errors.Is(err, errAway) || done != 1 {
		t.Errorf("a store that fails: %d passages: %v", done, err)
	}
	s.fail = 0
	if n := add(strings.Repeat(paragraph, 8)); text(n) != strings.Repeat(paragraph, 8) {
		t.Error("done again it is another text")
	}
	if n := add("short"); n != 1 || text(1) != "short" {
		t.Errorf("a short text has %d passages", n)
	}
	uris, err := s.List(t.Context(), "memory://")
	if want := []string{"memory://resources/docs/guide.md", uri + "/000000", uri + "/1", uri + "/notes", "memory://resources/docs/other/000099"}; err != nil || !slices.Equal(uris, want) {
		t.Errorf("there are %q, want %q: %v", uris, want, err)
	}
	if n := add("  \n "); n != 0 {
		t.Errorf("a blank text has %d passages", n)
	}
	for _, uri := range []string{"memory://user/x", "memory://resources/", "memory://resources", "x", "memory://resources/../x"} {
		if _, err := memory.AddResource(t.Context(), s, uri, []byte("x"), from); !errors.Is(err, memory.ErrInvalidURI) {
			t.Errorf("%q: %v", uri, err)
		}
	}
	for _, binary := range []string{"\x7fELF\x00", "caf\xe9"} {
		if _, err := memory.AddResource(t.Context(), s, uri, []byte(binary), from); !errors.Is(err, memory.ErrNotText) || !strings.Contains(err.Error(), uri) {
			t.Errorf("%q: %v", binary, err)
		}
	}
	if _, err := memory.AddResource(t.Context(), s, uri, make([]byte, memory.MaxResource+1), from); !errors.Is(err, memory.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	full := notebook.New(&notebook.Options{MaxNotes: 3})
	if n, err := memory.AddResource(t.Context(), full, uri, []byte(long), from); !errors.Is(err, memory.ErrFull) || n != 3 {
		t.Errorf("a full store takes %d: %v", n, err)
	}
}

// TestPassages: passages are at most so long, none is blank, and they are the text.
func TestPassages(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("x", 10_000), strings.Repeat("word ", 5_000), strings.Repeat("é", 5_000), strings.Repeat("a\n\n", 4_000), strings.Repeat("\n", 3_000) + "x",
	} {
		s := notebook.New(nil)
		n := must.Get(memory.AddResource(t.Context(), s, "memory://resources/x", []byte(text), memory.Origin{}))(t)
		var got strings.Builder
		for i := range n {
			part, err := s.Read(t.Context(), fmt.Sprintf("memory://resources/x/%06d", i))
			if err != nil || strings.TrimSpace(part) == "" || len(part) > memory.MaxPassage {
				t.Errorf("passage %d of %.4q has %d bytes: %v", i, text, len(part), err)
			}
			got.WriteString(part)
		}
		if strings.TrimLeft(got.String(), "\n") != strings.TrimLeft(text, "\n") {
			t.Errorf("the passages of %.4q have %d bytes of %d", text, len(got.String()), len(text))
		}
	}
}

// TestReadLevel: a note, and a resource by its name, at each level.
func TestReadLevel(t *testing.T) {
	s := notebook.New(nil)
	const note, guide = "memory://user/note", "memory://resources/guide.md"
	text := "# The guide\n\nSlugs join words\nwith hyphens. They skip empty words.\n\n## Limits\n\nAt most 80 characters! What is longer is cut.\n#no heading\n"
	must.Do(t, s.Write(t.Context(), note, text, memory.Origin{}))
	long := strings.Repeat(text, 100)
	must.Get(memory.AddResource(t.Context(), s, guide, []byte(long), memory.Origin{}))(t)
	const abstract = "The guide: Slugs join words with hyphens. They skip empty words."
	const overview = "# The guide\nSlugs join words with hyphens.\n## Limits\nAt most 80 characters!"
	for _, tt := range []struct{ uri, level, want string }{
		{note, memory.LevelFull, text},
		{note, memory.LevelAbstract, abstract},
		{note, memory.LevelOverview, overview},
		{guide, memory.LevelFull, long},
		{guide, memory.LevelAbstract, abstract},
	} {
		if got, err := memory.ReadLevel(t.Context(), s, tt.uri, tt.level); err != nil || got != tt.want {
			t.Errorf("%s of %s: %q, want %q: %v", tt.level, tt.uri, got, tt.want, err)
		}
	}
	got, err := memory.ReadLevel(t.Context(), s, guide, memory.LevelOverview)
	if err != nil || !strings.HasPrefix(got, overview+"\n# The guide\n") || !strings.HasSuffix(got, "\n…") || len(got) > 4<<10 {
		t.Errorf("overview of %d bytes %q: %v", len(got), got, err)
	}
	for text, want := range map[string]string{"": "", "## Only a title": "Only a title", strings.Repeat("word ", 200): strings.TrimSpace(strings.Repeat("word ", 79)) + "…", strings.Repeat("漢", 200): strings.Repeat("漢", 132) + "…"} {
		must.Do(t, s.Write(t.Context(), note, text, memory.Origin{}))
		if got, err := memory.ReadLevel(t.Context(), s, note, memory.LevelAbstract); err != nil || got != want || len(got) > 400 {
			t.Errorf("abstract of %.20q: %q, want %q: %v", text, got, want, err)
		}
	}
	if _, err := memory.ReadLevel(t.Context(), s, "memory://user/none", memory.LevelAbstract); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("of nothing: %v", err)
	}
	if _, err := memory.ReadLevel(t.Context(), s, note, "detail"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("another level: %v", err)
	}
	uncut := strings.Repeat("漢字", memory.MaxPassage) // nowhere to cut well
	must.Get(memory.AddResource(t.Context(), s, guide, []byte(uncut), memory.Origin{}))(t)
	if got, err := memory.ReadLevel(t.Context(), s, guide, memory.LevelFull); err != nil || got != uncut {
		t.Errorf("a resource of %d bytes has %d: %v", len(uncut), len(got), err)
	}
	for i := range memory.MaxResource / memory.MaxText {
		must.Do(t, s.Write(t.Context(), fmt.Sprintf("memory://agent/large/%d", i), strings.Repeat("x", memory.MaxText-1)+"\n", memory.Origin{}))
	}
	if got, err := memory.ReadLevel(t.Context(), s, "memory://agent/large", memory.LevelFull); err != nil || len(got) != memory.MaxResource {
		t.Errorf("as much as a resource has: %d bytes, %v", len(got), err)
	}
	must.Do(t, s.Write(t.Context(), "memory://agent/large/more", "x", memory.Origin{}))
	if _, err := memory.ReadLevel(t.Context(), s, "memory://agent/large", memory.LevelFull); !errors.Is(err, memory.ErrTooLarge) {
		t.Errorf("too much: %v", err)
	}
}
