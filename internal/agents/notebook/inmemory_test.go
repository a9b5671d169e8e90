package notebook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/memory"
	"github.com/rathcluster/rath/memory/memorytest"
)

func TestInMemory(t *testing.T) {
	t.Parallel()
	memorytest.TestStore(t, func(*testing.T) memory.Store { return notebook.New(nil) })
}

func TestMaxNotes(t *testing.T) {
	t.Parallel()
	m := notebook.New(&notebook.Options{MaxNotes: 2})
	for _, name := range []string{"a", "b", "a"} {
		must.Do(t, m.Write(t.Context(), "memory://user/"+name, "text", memory.Origin{}))
	}
	if err := m.Write(t.Context(), "memory://user/c", "text", memory.Origin{}); !errors.Is(err, memory.ErrFull) {
		t.Errorf("third note: error %v, want ErrFull", err)
	}
	if _, err := m.Archive(t.Context(), "s", "k", []memory.Message{{Role: "user", Text: "hello"}}, memory.Origin{}); !errors.Is(err, memory.ErrFull) {
		t.Errorf("archive: error %v, want ErrFull", err)
	}
	if err := m.Write(t.Context(), "memory://user/b", "replaced", memory.Origin{}); err != nil {
		t.Errorf("replacing in a full store: %v", err)
	}
	must.Do(t, m.Delete(t.Context(), "memory://user/a"))
	if err := m.Write(t.Context(), "memory://user/c", "text", memory.Origin{}); err != nil {
		t.Errorf("after a delete: %v", err)
	}
}

// TestBefore: a rejected change is not visible, and Before is not called for an empty
// change.
func TestBefore(t *testing.T) {
	t.Parallel()
	refuse := errors.New("disk gone")
	var calls int
	var next error
	m := notebook.New(&notebook.Options{Before: func(notebook.Change) error { calls++; return next }})
	must.Do(t, m.Write(t.Context(), "memory://user/a", "one", memory.Origin{}))
	next = refuse
	if err := m.Write(t.Context(), "memory://user/a", "one", memory.Origin{}); err != nil || calls != 1 {
		t.Errorf("the same text again: error %v, %d changes, want one", err, calls)
	}
	if err := m.Delete(t.Context(), "memory://user/absent"); err != nil || calls != 1 {
		t.Errorf("delete of nothing: error %v, %d changes, want one", err, calls)
	}
	if err := m.Write(t.Context(), "memory://user/a", "two", memory.Origin{}); !errors.Is(err, refuse) {
		t.Errorf("refused write: error %v", err)
	}
	if err := m.Delete(t.Context(), "memory://user"); !errors.Is(err, refuse) {
		t.Errorf("refused delete: error %v", err)
	}
	if text, err := m.Read(t.Context(), "memory://user/a"); text != "one" || err != nil {
		t.Errorf("after refused changes: %q, %v", text, err)
	}
}

func TestURIs(t *testing.T) {
	t.Parallel()
	a := must.Get(notebook.NoteURI(notebook.User, "preferences/ui", "run-1/2.0"))(t)
	again, _ := notebook.NoteURI(notebook.User, "preferences/ui", "run-1/2.0")
	other, _ := notebook.NoteURI(notebook.User, "preferences/ui", "run-1/2.1")
	if a != again || a == other || !strings.HasPrefix(a, "memory://user/memories/preferences/ui/") {
		t.Errorf("notes are %s, %s and %s", a, again, other)
	}
	for _, category := range []string{"", "..", "a//b"} {
		if _, err := notebook.NoteURI(notebook.User, category, "k"); !errors.Is(err, memory.ErrInvalidURI) {
			t.Errorf("category %q: error %v, want ErrInvalidURI", category, err)
		}
	}
	if _, err := notebook.NoteURI("project", "c", "k"); !errors.Is(err, memory.ErrInvalidURI) {
		t.Errorf("unknown scope: error %v, want ErrInvalidURI", err)
	}
	if u, err := notebook.ParseURI("viking://user/a/b"); err != nil || u.String() != "memory://user/a/b" || u.Scope != notebook.User {
		t.Errorf("legacy name parses as %+v, %v", u, err)
	}
}

func Example() {
	ctx, m := context.Background(), notebook.New(nil)
	for key, text := range map[string]string{
		"run-1/0": "Prefers a dark colour theme at night.",
		"run-1/1": "Drinks green tea, no coffee.",
		"run-2/0": "喜欢绿茶。",
	} {
		uri, err := notebook.NoteURI(notebook.User, "preferences", key)
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := m.Write(ctx, uri, text, memory.Origin{}); err != nil {
			fmt.Println(err)
			return
		}
	}
	for _, question := range []string{"which colours does the user like?", "茶", "football"} {
		hits, err := m.Find(ctx, memory.Query{Text: question, Under: "memory://user", Limit: 1})
		fmt.Print(question, " -> ")
		for _, h := range hits {
			fmt.Print(h.Snippet)
		}
		fmt.Println("", len(hits), err)
	}
	// Output:
	// which colours does the user like? -> Prefers a dark colour theme at night. 1 <nil>
	// 茶 -> 喜欢绿茶。 1 <nil>
	// football ->  0 <nil>
}

func ExampleInMemory_Archive() {
	ctx, m := context.Background(), notebook.New(nil)
	uri, err := m.Archive(ctx, "chat-7", "run-3", []memory.Message{
		{Role: "user", Text: "Who approves deployments?"},
		{Role: "assistant", Text: "Mira does."},
	}, memory.Origin{Session: "chat-7", Run: "run-3"})
	fmt.Println(uri, err)
	// The search finds the answer by the words of the neighbouring question.
	hits, err := m.Find(ctx, memory.Query{Text: "approving a deployment"})
	for _, h := range hits {
		fmt.Println(h.Session, h.Snippet)
	}
	fmt.Println(err)
	// Output:
	// memory://session/chat-7/archives/14713de982472b50 <nil>
	// chat-7 user: Who approves deployments?
	// chat-7 assistant: Mira does.
	// <nil>
}

// corpus returns n notes of sixty words with frequencies as in a natural language.
func corpus(n int) []string {
	rng := rand.New(rand.NewPCG(7, 7))
	zipf := rand.NewZipf(rng, 1.1, 4, 20_000)
	texts := make([]string, n)
	var b strings.Builder
	for i := range texts {
		b.Reset()
		for range 60 {
			fmt.Fprintf(&b, "word%x ", zipf.Uint64())
		}
		texts[i] = b.String()
	}
	return texts
}

func BenchmarkFind(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		m := notebook.New(nil)
		texts := corpus(n)
		for i, text := range texts {
			must.Do(b, m.Write(b.Context(), fmt.Sprintf("memory://agent/%d", i), text, memory.Origin{}))
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				words := strings.Fields(texts[i%n])
				must.Get(m.Find(b.Context(), memory.Query{Text: strings.Join(words[:4], " ")}))(b)
			}
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	m := notebook.New(&notebook.Options{MaxNotes: 1 << 30})
	texts := corpus(1_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		must.Do(b, m.Write(b.Context(), fmt.Sprintf("memory://agent/%d", i%10_000), texts[i*7%1_000], memory.Origin{}))
	}
}

// BenchmarkApply makes the index of 20,000 notes, as a store that opens does.
func BenchmarkApply(b *testing.B) {
	texts := corpus(20_000)
	var c notebook.Change
	for i, text := range texts {
		c.Puts = append(c.Puts, notebook.Note{URI: fmt.Sprintf("memory://agent/%d", i), Text: text})
	}
	b.ReportAllocs()
	for b.Loop() {
		notebook.New(nil).Apply(c)
	}
}

// TestJSONSize compares with the output of encoding/json.
func TestJSONSize(t *testing.T) {
	var text strings.Builder
	for r := range rune(0x3000) {
		text.WriteRune(r)
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	must.Do(t, enc.Encode(text.String()))
	if got, want := notebook.JSONSize(text.String()), b.Len()-len("\"\"\n"); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}
