package tokens

import (
	"strings"
	"testing"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// TestCount: the counts are those that OpenAI's own tokenizer gives, and texts that are
// too long to count are near.
func TestCount(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "hello world": 2, "tiktoken is great!": 6, "お誕生日おめでとう": 8, "antidisestablishmentarianism": 6, "2 + 2 = 4": 7,
	} {
		if got := Count(text); got != want {
			t.Errorf("%q has %d tokens, want %d", text, got, want)
		}
	}
	english := "The quick brown fox jumps over the lazy dog, and then it sleeps. "
	one := Count(strings.Repeat(english, 100))
	if long := Count(strings.Repeat(english, 5_000), strings.Repeat(english, 5_000)); long < 98*one || long > 102*one {
		t.Errorf("a hundred times as much has %d, once %d", long, one)
	}
	// A word without end, in any language, and bytes that are none.
	for _, part := range []string{"a", "漢", "\xff", "🙂"} {
		if n := Count(strings.Repeat(part, 1<<20/len(part))); n <= 0 || n > 4<<20 {
			t.Errorf("%q for ever: %d", part, n)
		}
	}
}

// TestCounter: a model's counts are corrected by its server's counts, within bounds;
// those of other models are not.
func TestCounter(t *testing.T) {
	r := &llm.Request{Provider: llm.Provider{Kind: "anthropic", Model: "m"}, Messages: []llm.Message{
		{Role: llm.System, Text: "You are a helpful assistant."}, {Role: llm.Assistant, Calls: []session.ToolCall{{Name: "f", Args: `{"x":1}`}}},
	}, Tools: []llm.ToolSpec{{Name: "f", Description: "Looks it up."}}}
	var c Counter
	plain := c.Request(r)
	if plain < 25 || plain > 45 {
		t.Errorf("%d tokens", plain)
	}
	c.Stated(r, 1000, plain*3/2)
	if got := c.Request(r); got < plain*3/2-1 || got > plain*3/2+1 {
		t.Errorf("%d tokens, and half as many more once the server said so: %d", plain, got)
	}
	if n := c.Texts(Of(&r.Provider), "hello world", "hello world"); n != 6 {
		t.Errorf("4 are %d", n)
	}
	c.Stated(r, 1000, plain*1000)
	if got := c.Request(r); got != plain*3 {
		t.Errorf("an absurd count makes %d of %d", got, plain)
	}
	c.Stated(r, maxSample+1, plain)
	c.Stated(r, 1000, 0)
	if got := c.Request(r); got != plain*3 {
		t.Errorf("what is not taken makes %d of %d", got, plain)
	}
	shows := &llm.Request{Provider: r.Provider, Messages: []llm.Message{{Text: "look", Images: []llm.Image{{Data: []byte("x")}}}}}
	if c.Stated(shows, 1000, plain); c.Request(r) != plain*3 {
		t.Error("a request with images is kept, bytes and all")
	}
	r.Provider.Model = "other"
	if got := c.Request(r); got != plain {
		t.Errorf("another model has %d, want %d", got, plain)
	}
}

func BenchmarkStated(b *testing.B) {
	r := &llm.Request{Messages: []llm.Message{{Text: "hello"}}}
	var c Counter
	for b.Loop() {
		c.Stated(r, 1000, 10)
	}
}

func BenchmarkCount(b *testing.B) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog, and then it sleeps. ", 500)
	Count("a")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Count(text)
	}
}
