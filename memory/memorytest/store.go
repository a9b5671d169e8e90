// Package memorytest is the test suite for implementations of memory.Store.
//
// It tests the contract and is independent of a store's storage. It also tests
// memory.Archiver if the store implements it.
package memorytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/memory"
)

// TestStore runs the suite. open returns a new empty store each time and cleans it up with
// t.Cleanup. without names the parts that test contracts the store does not implement.
func TestStore(t *testing.T, open func(t *testing.T) memory.Store, without ...string) {
	left := slices.Clone(without)
	part := func(name string, test func(t *testing.T)) {
		if i := slices.Index(left, name); i >= 0 {
			left = slices.Delete(left, i, i+1)
			return
		}
		t.Run(name, test)
	}
	part("Names", func(t *testing.T) { testNames(t, open(t)) })
	part("Write", func(t *testing.T) { testWrite(t, open(t)) })
	part("List", func(t *testing.T) { testList(t, open(t)) })
	part("Delete", func(t *testing.T) { testDelete(t, open(t)) })
	part("Find", func(t *testing.T) { testFind(t, open(t)) })
	part("FindScripts", func(t *testing.T) { testFindScripts(t, open(t)) })
	part("Snippet", func(t *testing.T) { testSnippet(t, open(t)) })
	part("Origin", func(t *testing.T) { testOrigin(t, open(t)) })
	part("Order", func(t *testing.T) { testOrder(t, open(t), open(t)) })
	part("Cancelled", func(t *testing.T) { testCancelled(t, open(t)) })
	part("Concurrent", func(t *testing.T) { testConcurrent(t, open(t)) })
	if _, ok := open(t).(memory.Archiver); ok {
		part("Archive", func(t *testing.T) { testArchive(t, open(t)) })
	}
	if len(left) > 0 {
		t.Errorf("the suite has no parts %q", left)
	}
}

func write(t *testing.T, s memory.Store, uri, text string) {
	t.Helper()
	if err := s.Write(t.Context(), uri, text, memory.Origin{}); err != nil {
		t.Fatalf("write %s: %v", uri, err)
	}
}

func read(t *testing.T, s memory.Store, uri string) string {
	t.Helper()
	text, err := s.Read(t.Context(), uri)
	if err != nil {
		t.Fatalf("read %s: %v", uri, err)
	}
	return text
}

func list(t *testing.T, s memory.Store, uri string) []string {
	t.Helper()
	uris, err := s.List(t.Context(), uri)
	if err != nil {
		t.Fatalf("list %s: %v", uri, err)
	}
	return uris
}

func find(t *testing.T, s memory.Store, q memory.Query) []memory.Hit {
	t.Helper()
	hits, err := s.Find(t.Context(), q)
	if err != nil {
		t.Fatalf("find %+v: %v", q, err)
	}
	return hits
}

func found(hits []memory.Hit) []string {
	var uris []string
	for _, h := range hits {
		uris = append(uris, h.URI)
	}
	return uris
}

func testNames(t *testing.T, s memory.Store) {
	ctx := t.Context()
	for _, uri := range []string{
		"", "memory:", "memory:/user/a", "http://user/a", "user/a", "memory://project/a", "memory://User/a",
		"memory://user/", "memory://user", "memory://user//a", "memory://user/a/", "memory://user/./a",
		"memory://user/../agent/a", "memory://user/a/..", "memory://user/a\x00", "memory://user/a\nb", "memory://user/\xff",
		"memory://user/" + strings.Repeat("x", 2000),
	} {
		if err := s.Write(ctx, uri, "text", memory.Origin{}); !errors.Is(err, memory.ErrInvalidURI) {
			t.Errorf("write %.60q: error %v, want ErrInvalidURI", uri, err)
		}
		if _, err := s.Read(ctx, uri); !errors.Is(err, memory.ErrInvalidURI) {
			t.Errorf("read %.60q: error %v, want ErrInvalidURI", uri, err)
		}
	}
	for _, uri := range []string{"", "memory://project", "memory://user//a", "memory://user/.."} {
		if _, err := s.List(ctx, uri); !errors.Is(err, memory.ErrInvalidURI) {
			t.Errorf("list %q: error %v, want ErrInvalidURI", uri, err)
		}
		if err := s.Delete(ctx, uri); !errors.Is(err, memory.ErrInvalidURI) {
			t.Errorf("delete %q: error %v, want ErrInvalidURI", uri, err)
		}
		if _, err := s.Find(ctx, memory.Query{Text: "text", Under: uri}); uri != "" && !errors.Is(err, memory.ErrInvalidURI) {
			t.Errorf("find under %q: error %v, want ErrInvalidURI", uri, err)
		}
	}
	if uris := list(t, s, "memory://"); len(uris) != 0 {
		t.Errorf("refused names are stored: %q", uris)
	}
	// Names that look like parts of each other, or like files, do not meet.
	names := []string{
		"memory://agent/a", "memory://agent/a.md", "memory://agent/a.v1.2", "memory://agent/a.v1.3", "memory://agent/a/b",
		"memory://agent/A", "memory://agent/ä 深", "memory://resources/a", "memory://session/s1/a", "memory://user/a",
	}
	for _, uri := range names {
		write(t, s, uri, "text of "+uri)
	}
	for _, uri := range names {
		if got := read(t, s, uri); got != "text of "+uri {
			t.Errorf("%s holds %q", uri, got)
		}
	}
	if got := read(t, s, "viking://user/a"); got != "text of memory://user/a" {
		t.Errorf("the legacy scheme reads %q", got)
	}
}

func testWrite(t *testing.T, s memory.Store) {
	const uri = "memory://user/note"
	if _, err := s.Read(t.Context(), uri); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("read of nothing: error %v, want ErrNotFound", err)
	}
	for _, text := range []string{"one", "one", "  spaces stay \r\n\x00", "three \u2028 é 深"} {
		write(t, s, uri, text)
		if got := read(t, s, uri); got != text {
			t.Errorf("read %q, wrote %q", got, text)
		}
	}
	if hits := find(t, s, memory.Query{Text: "one"}); len(hits) != 0 {
		t.Errorf("replaced text is found: %v", hits)
	}
	if hits := find(t, s, memory.Query{Text: "three"}); len(hits) != 1 {
		t.Errorf("hits of one note: %v", hits)
	}
	write(t, s, uri, "bad \xff byte")
	if got := read(t, s, uri); got != "bad \ufffd byte" {
		t.Errorf("bytes that are not UTF-8 read %q", got)
	}
	if err := s.Write(t.Context(), uri, strings.Repeat("x", memory.MaxText+1), memory.Origin{}); !errors.Is(err, memory.ErrTooLarge) {
		t.Errorf("too large: error %v, want ErrTooLarge", err)
	}
	write(t, s, uri, strings.Repeat("x ", memory.MaxText/2))
	for _, text := range []string{strings.Repeat("\x01", memory.MaxText/2), strings.Repeat(`"`, memory.MaxText), strings.Repeat("\xffa", memory.MaxText/2)} {
		if err := s.Write(t.Context(), uri, text, memory.Origin{}); !errors.Is(err, memory.ErrTooLarge) || !strings.Contains(err.Error(), "shorten it, or split it") {
			t.Errorf("%d bytes of %.3q: error %v, want ErrTooLarge", len(text), text, err)
		}
	}
	for _, text := range []string{strings.Repeat("\x01", memory.MaxJSON/6), strings.Repeat(`"`, memory.MaxJSON/2), strings.Repeat("• ", memory.MaxText/4)} {
		write(t, s, uri, text)
		if got := read(t, s, uri); got != text {
			t.Errorf("%d bytes of %.3q read as %d bytes", len(text), text, len(got))
		}
	}
}

// testOrigin: a note keeps whom it is from, and the last writer counts.
func testOrigin(t *testing.T, s memory.Store) {
	const uri = "memory://user/note"
	first, second := memory.Origin{Session: "s1", Version: 4, Run: "r1", Step: "2.a.0"}, memory.Origin{Session: "s2", Run: "r2", Step: "0"}
	for _, from := range []memory.Origin{{}, first, second, {}} {
		must.Do(t, s.Write(t.Context(), uri, "the same words", from))
		if hits := find(t, s, memory.Query{Text: "words"}); len(hits) != 1 || hits[0].Origin != from || hits[0].Session != "" {
			t.Errorf("written from %+v it is found as %+v", from, hits)
		}
	}
}

func testList(t *testing.T, s memory.Store) {
	for _, uri := range []string{"memory://user/b/2", "memory://user/a", "memory://user/b", "memory://user/b/1", "memory://user/bb", "memory://agent/z"} {
		write(t, s, uri, "x")
	}
	tests := []struct {
		dir  string
		want []string
	}{
		{"memory://user/b", []string{"memory://user/b", "memory://user/b/1", "memory://user/b/2"}},
		{"memory://user", []string{"memory://user/a", "memory://user/b", "memory://user/b/1", "memory://user/b/2", "memory://user/bb"}},
		{"viking://user/", []string{"memory://user/a", "memory://user/b", "memory://user/b/1", "memory://user/b/2", "memory://user/bb"}},
		{"memory://session", nil},
		{"memory://user/nothing", nil},
		{"memory://", []string{"memory://agent/z", "memory://user/a", "memory://user/b", "memory://user/b/1", "memory://user/b/2", "memory://user/bb"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, list(t, s, tt.dir)); diff != "" {
			t.Errorf("list %s (-want +got):\n%s", tt.dir, diff)
		}
	}
}

func testDelete(t *testing.T, s memory.Store) {
	for _, uri := range []string{"memory://user/a", "memory://user/a/1", "memory://user/ab", "memory://agent/a"} {
		write(t, s, uri, "coffee")
	}
	for range 2 {
		must.Do(t, s.Delete(t.Context(), "memory://user/a"))
		want := []string{"memory://agent/a", "memory://user/ab"}
		if diff := cmp.Diff(want, list(t, s, "memory://")); diff != "" {
			t.Errorf("after the delete (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, found(find(t, s, memory.Query{Text: "coffee"}))); diff != "" {
			t.Errorf("found after the delete (-want +got):\n%s", diff)
		}
	}
	must.Do(t, s.Delete(t.Context(), "memory://"))
	if hits := find(t, s, memory.Query{Text: "coffee"}); len(hits) != 0 {
		t.Errorf("an emptied store finds %v", hits)
	}
	write(t, s, "memory://user/a", "tea")
	if hits := find(t, s, memory.Query{Text: "tea"}); len(hits) != 1 {
		t.Errorf("a note written after the delete: hits %v", hits)
	}
}

func testFind(t *testing.T, s memory.Store) {
	if hits := find(t, s, memory.Query{Text: "coffee"}); len(hits) != 0 {
		t.Errorf("an empty store finds %v", hits)
	}
	write(t, s, "memory://user/dark", "The user prefers a dark colour theme at night.")
	write(t, s, "memory://user/python", "The user reads English and writes Python.")
	write(t, s, "memory://session/s1/coffee", "Dark dark dark coffee in the morning")
	write(t, s, "memory://agent/nothing", "nothing here")
	tests := []struct {
		name string
		q    memory.Query
		want []string
	}{
		{"best first", memory.Query{Text: "dark theme"}, []string{"memory://user/dark", "memory://session/s1/coffee"}},
		{"often beats once", memory.Query{Text: "DARK!"}, []string{"memory://session/s1/coffee", "memory://user/dark"}},
		{"limit", memory.Query{Text: "dark theme", Limit: 1}, []string{"memory://user/dark"}},
		{"under a scope", memory.Query{Text: "dark", Under: "memory://session"}, []string{"memory://session/s1/coffee"}},
		{"under a note", memory.Query{Text: "dark", Under: "memory://user/dark"}, []string{"memory://user/dark"}},
		{"under part of a name", memory.Query{Text: "dark", Under: "memory://user/d"}, nil},
		{"inflected", memory.Query{Text: "writing"}, []string{"memory://user/python"}},
		{"nothing shared", memory.Query{Text: "quantum"}, nil},
		{"no words", memory.Query{Text: "…?"}, nil},
		{"empty", memory.Query{}, nil},
	}
	for _, tt := range tests {
		hits := find(t, s, tt.q)
		if diff := cmp.Diff(tt.want, found(hits)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		for i, h := range hits {
			if h.Score <= 0 || i > 0 && hits[i-1].Score < h.Score {
				t.Errorf("%s: score %d of hit %d after %v", tt.name, h.Score, i, hits[:i])
			}
		}
	}
	h := find(t, s, memory.Query{Text: "coffee"})[0]
	if h.Session != "s1" || h.Snippet != "Dark dark dark coffee in the morning" {
		t.Errorf("hit is %+v", h)
	}
	if h := find(t, s, memory.Query{Text: "python"})[0]; h.Session != "" {
		t.Errorf("a note of scope user belongs to session %q", h.Session)
	}
	for i := range memory.MaxLimit + 10 {
		write(t, s, fmt.Sprintf("memory://resources/%03d", i), "filler")
	}
	for limit, want := range map[int]int{0: memory.DefaultLimit, -1: memory.DefaultLimit, 20: 20, 1 << 30: memory.MaxLimit} {
		hits := find(t, s, memory.Query{Text: "filler", Limit: limit})
		if len(hits) != want || hits[0].URI != "memory://resources/000" {
			t.Errorf("limit %d: %d hits from %s, want %d", limit, len(hits), hits[0].URI, want)
		}
	}
}

func testFindScripts(t *testing.T, s memory.Store) {
	for name, text := range map[string]string{
		"zh": "用户喜欢深色主题", "ja": "会議は東京オフィスで", "ko": "사용자는 커피를 마신다", "th": "ผู้ใช้ชอบกาแฟ",
		"ru": "Пользователь любит чай", "el": "ο χρήστης πίνει καφέ", "ar": "المستخدم يحب القهوة", "fr": "préfère le thé glacé",
	} {
		write(t, s, "memory://user/"+name, text)
	}
	for query, want := range map[string]string{
		"深色": "zh", "主题": "zh", "東京": "ja", "ｵﾌｨｽ": "ja", "커피": "ko", "กาแฟ": "th",
		"ЧАЙ": "ru", "καφε": "el", "القهوة": "ar", "glace": "fr", "THE\u0301": "fr",
	} {
		if got := found(find(t, s, memory.Query{Text: query})); len(got) != 1 || got[0] != "memory://user/"+want {
			t.Errorf("%q finds %q, want %s alone", query, got, want)
		}
	}
}

func testSnippet(t *testing.T, s memory.Store) {
	filler := strings.Repeat("lorem ipsum dolor ", 100)
	write(t, s, "memory://user/long", filler+"the \n\t grinder  hums, espresso follows "+filler+"espresso ")
	write(t, s, "memory://user/zh", strings.Repeat("水", 900)+"绿茶很好"+strings.Repeat("火", 900))
	for query, want := range map[string]string{"espresso grinders": "the grinder hums, espresso follows", "绿茶": "绿茶很好"} {
		hits := find(t, s, memory.Query{Text: query})
		if len(hits) != 1 || !strings.Contains(hits[0].Snippet, want) {
			t.Errorf("%q: hits %+v, want the passage %q", query, hits, want)
			continue
		}
		if n := utf8.RuneCountInString(hits[0].Snippet); n > 242 {
			t.Errorf("%q: a snippet of %d characters", query, n)
		}
	}
}

// testOrder writes the same notes in two orders, with detours in one.
func testOrder(t *testing.T, a, b memory.Store) {
	var uris []string
	for i := range 40 {
		uris = append(uris, fmt.Sprintf("memory://agent/n%02d", i))
	}
	text := func(i int) string {
		return strings.Repeat("alpha ", i%5) + strings.Repeat("beta ", i%3) + strings.Repeat("gamma ", 1+i%2)
	}
	for i, uri := range uris {
		write(t, a, uri, text(i))
	}
	for i, uri := range slices.Backward(uris) {
		write(t, b, uri, "detour "+uri)
		write(t, b, "memory://agent/other", text(i+1))
		write(t, b, uri, text(i))
	}
	must.Do(t, b.Delete(t.Context(), "memory://agent/other"))
	for _, query := range []string{"alpha", "beta gamma", "gamma alpha beta", "detour"} {
		q := memory.Query{Text: query, Limit: memory.MaxLimit}
		if diff := cmp.Diff(find(t, a, q), find(t, b, q)); diff != "" {
			t.Errorf("%q depends on the order of writing:\n%s", query, diff)
		}
	}
}

func testCancelled(t *testing.T, s memory.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	const uri = "memory://user/a"
	errs := map[string]error{"write": s.Write(ctx, uri, "x", memory.Origin{}), "delete": s.Delete(ctx, uri)}
	_, errs["read"] = s.Read(ctx, uri)
	_, errs["find"] = s.Find(ctx, memory.Query{Text: "x"})
	_, errs["list"] = s.List(ctx, uri)
	for name, err := range errs {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v, want context.Canceled", name, err)
		}
	}
	if uris := list(t, s, "memory://"); len(uris) != 0 {
		t.Errorf("a cancelled write is stored: %q", uris)
	}
}

func testConcurrent(t *testing.T, s memory.Store) {
	const writers, each = 4, 15
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				uri := fmt.Sprintf("memory://agent/w%d/n%d", w, i)
				if err := s.Write(t.Context(), uri, fmt.Sprintf("common word%dx%d", w, i), memory.Origin{}); err != nil {
					t.Errorf("write %s: %v", uri, err)
				}
				hits, err := s.Find(t.Context(), memory.Query{Text: fmt.Sprintf("word%dx%d", w, i)})
				if err != nil || len(hits) != 1 || hits[0].URI != uri {
					t.Errorf("own write %s: hits %v, error %v", uri, hits, err)
				}
				if i%3 == 0 {
					if err := s.Delete(t.Context(), uri); err != nil {
						t.Errorf("delete %s: %v", uri, err)
					}
				}
			}
		})
	}
	wg.Wait()
	want := writers * (each - (each+2)/3)
	if uris := list(t, s, "memory://"); len(uris) != want {
		t.Errorf("%d notes, want %d", len(uris), want)
	}
	if hits := find(t, s, memory.Query{Text: "common", Limit: memory.MaxLimit}); len(hits) != want {
		t.Errorf("%d hits, want %d", len(hits), want)
	}
}

func testArchive(t *testing.T, s memory.Store) {
	a := s.(memory.Archiver)
	archive := func(session, key string, messages ...memory.Message) string {
		t.Helper()
		uri := must.Get(a.Archive(t.Context(), session, key, messages, memory.Origin{Session: "writer", Run: key}))(t)
		return uri
	}
	messages := []memory.Message{
		{Role: "user", Text: "Which grinder should I buy?"},
		{Role: "assistant", Text: " \n"},
		{Role: "assistant", Text: "The conical one."},
		{Role: "user", Text: "Ordered, it comes on Friday."},
	}
	uri := archive("s1", "run/2.0", messages...)
	if again := archive("s1", "run/2.0", messages...); again != uri {
		t.Errorf("the same archive is %s and %s", uri, again)
	}
	uris := list(t, s, uri)
	if len(uris) != 3 {
		t.Fatalf("archived three messages as %q", uris)
	}
	if got := read(t, s, uris[1]); got != "assistant: The conical one." {
		t.Errorf("the second message is %q", got)
	}
	hits := find(t, s, memory.Query{Text: "grinder"})
	if len(hits) != 1 || hits[0].URI != uris[0] || hits[0].Session != "s1" || hits[0].Origin != (memory.Origin{Session: "writer", Run: "run/2.0"}) {
		t.Errorf("the question is found as %v", hits)
	}
	// The answer has not the word, but stands next to one that has.
	hits = find(t, s, memory.Query{Text: "friday", Under: "memory://session/s1"})
	if got := found(hits); len(got) != 2 || got[0] != uris[2] && got[1] != uris[2] || strings.Contains(hits[0].Snippet+hits[1].Snippet, "buy") {
		t.Errorf("the neighbours of friday are %v", hits)
	}
	other := archive("s1", "run/3.0", messages...)
	if other == uri || len(list(t, s, "memory://session/s1")) != 6 {
		t.Errorf("a second archive %s beside %s: %q", other, uri, list(t, s, "memory://"))
	}
	archive("s1", "run/2.0", messages[:1]...)
	if got := list(t, s, uri); !slices.Equal(got, uris[:1]) {
		t.Errorf("a shorter archive under the same key leaves %q", got)
	}
	archive("s2", "empty")
	for _, session := range []string{"", "..", "a/b", "a\n"} {
		if _, err := a.Archive(t.Context(), session, "k", messages, memory.Origin{}); !errors.Is(err, memory.ErrInvalidURI) {
			t.Errorf("session %q: error %v, want ErrInvalidURI", session, err)
		}
	}
	if _, err := a.Archive(t.Context(), "s3", "k", make([]memory.Message, memory.MaxMessages+1), memory.Origin{}); !errors.Is(err, memory.ErrTooLarge) {
		t.Errorf("too many messages: error %v, want ErrTooLarge", err)
	}
	large := memory.Message{Text: strings.Repeat("x", memory.MaxText+1)}
	if _, err := a.Archive(t.Context(), "s3", "k", []memory.Message{messages[0], large}, memory.Origin{}); !errors.Is(err, memory.ErrTooLarge) {
		t.Errorf("too large a message: error %v, want ErrTooLarge", err)
	}
	large.Text = strings.Repeat("\x01", memory.MaxJSON/6+1)
	if _, err := a.Archive(t.Context(), "s3", "k", []memory.Message{messages[0], large}, memory.Origin{}); !errors.Is(err, memory.ErrTooLarge) {
		t.Errorf("a message that is too large as JSON: error %v, want ErrTooLarge", err)
	}
	many := slices.Repeat([]memory.Message{{Text: strings.Repeat("x", memory.MaxText)}}, memory.MaxArchive/memory.MaxText+1)
	if _, err := a.Archive(t.Context(), "s3", "k", many, memory.Origin{}); !errors.Is(err, memory.ErrTooLarge) {
		t.Errorf("too much in all: error %v, want ErrTooLarge", err)
	}
	if uris := list(t, s, "memory://session/s3"); len(uris) != 0 {
		t.Errorf("a refused archive left %q", uris)
	}
}
