package notes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/agents/notebook"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/memory"
)

// pair is a memory by two connections to one server.
func pair(t *testing.T) (a, b *Store) {
	t.Helper()
	srv := natstest.Start(t, nil)
	first, second := layer.Dial(t, streamstest.NodeOptions(srv)), layer.Dial(t, streamstest.NodeOptions(srv))
	must.Do(t, first.Provision(t.Context()))
	return open(t, first, "notes"), open(t, second, "notes")
}

// contents are the texts of all notes.
func contents(t *testing.T, s *Store) map[string]string {
	t.Helper()
	uris, err := s.List(t.Context(), "memory://")
	must.Do(t, err)
	all := map[string]string{}
	for _, uri := range uris {
		all[uri], err = s.Read(t.Context(), uri)
		must.Do(t, err)
	}
	return all
}

// TestFoundElsewhere: another store finds a store's acknowledged notes, also after the
// first is gone, with all replacements and deletions meanwhile.
func TestFoundElsewhere(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	const uri = "memory://user/memories/places/1"
	from := memory.Origin{Session: "s1", Run: "r1", Step: "2.0"}
	for i := range 5 {
		must.Do(t, a.Write(t.Context(), uri, fmt.Sprint("The grinder is in room ", i), from))
		if text, err := b.Read(t.Context(), uri); err != nil || !strings.HasSuffix(text, fmt.Sprint(i)) {
			t.Fatalf("write %d is read elsewhere as %q, %v", i, text, err)
		}
	}
	must.Do(t, a.Close())
	if err := a.Write(t.Context(), uri, "late", from); !errors.Is(err, memory.ErrClosed) {
		t.Errorf("a closed store: %v", err)
	}
	hits, err := b.Find(t.Context(), memory.Query{Text: "grinder"})
	if err != nil || len(hits) != 1 || hits[0].URI != uri || hits[0].Origin != from {
		t.Errorf("found %+v, %v", hits, err)
	}
	must.Do(t, b.Delete(t.Context(), "memory://user"))
	if n, err := b.Len(t.Context()); err != nil || n != 0 {
		t.Errorf("%d notes after all were deleted, %v", n, err)
	}
	names, err := Names(t.Context(), b.s, "acme")
	if err != nil || !slices.Equal(names, []string{"notes"}) {
		t.Errorf("memories %q, %v", names, err)
	}
}

// TestRebuilt makes random changes by two stores, which have to agree with a model and,
// afterwards, with a store that reads the stream.
func TestRebuilt(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	model := notebook.New(nil)
	rng := rand.New(rand.NewPCG(7, 8))
	text := func() string {
		words := strings.Fields("alpha beta gamma 深色主题 running \u2028 \x00 thé")
		return strings.Repeat(words[rng.IntN(len(words))]+" ", 1+rng.IntN(9))
	}
	for i := range 400 {
		s := []*Store{a, b}[rng.IntN(2)]
		uri := fmt.Sprintf("memory://user/d%d/n%d", rng.IntN(4), rng.IntN(6))
		switch rng.IntN(8) {
		case 0:
			uri := []string{uri, "memory://user/d1", "memory://session/s1", "memory://session/s1/archives", "memory://agent"}[rng.IntN(5)]
			must.Do(t, errors.Join(s.Delete(t.Context(), uri), model.Delete(t.Context(), uri)))
		case 1, 2:
			messages := make([]memory.Message, rng.IntN(5))
			for i := range messages {
				messages[i] = memory.Message{Role: "user", Text: text()}
				if rng.IntN(12) == 0 { // a change of several messages
					messages[i].Text = strings.Repeat(text(), 110_000)[:130<<10] // which is a note also where each word takes 3.5 times its bytes as JSON
				}
			}
			key := fmt.Sprint(rng.IntN(3))
			got, err := s.Archive(t.Context(), "s1", key, messages, memory.Origin{})
			must.Do(t, err)
			want, err := model.Archive(t.Context(), "s1", key, messages, memory.Origin{})
			must.Do(t, err)
			if got != want {
				t.Fatalf("archived as %s, want %s", got, want)
			}
			if rng.IntN(2) == 0 {
				uri := got + "/000001"
				must.Do(t, errors.Join(s.Write(t.Context(), uri, "instead", memory.Origin{}), model.Write(t.Context(), uri, "instead", memory.Origin{})))
			}
		default:
			text := text()
			must.Do(t, errors.Join(s.Write(t.Context(), uri, text, memory.Origin{}), model.Write(t.Context(), uri, text, memory.Origin{})))
		}
		if i%100 == 99 {
			want := map[string]string{}
			for n := range model.Notes() {
				want[n.URI] = n.Text
			}
			for name, s := range map[string]*Store{"a": a, "b": b, "one that reads the stream": open(t, b.s, "notes")} {
				if diff := cmp.Diff(want, contents(t, s)); diff != "" {
					t.Fatalf("after %d changes %s differs (-want +got):\n%.2000s", i+1, name, diff)
				}
				for _, q := range []string{"alpha run", "主题 beta", "thé"} {
					want, err := model.Find(t.Context(), memory.Query{Text: q})
					must.Do(t, err)
					got, err := s.Find(t.Context(), memory.Query{Text: q})
					must.Do(t, err)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s finds other notes by %q (-want +got):\n%.2000s", name, q, diff)
					}
				}
			}
		}
	}
}

// TestConcurrent has several stores write their own notes and read those of all: a read
// includes everything acknowledged before it began, or newer versions.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	stores := []*Store{a, b, open(t, a.s, "notes"), open(t, b.s, "notes")}
	uri := func(w int) string { return fmt.Sprintf("memory://agent/w%d", w) }
	var mu sync.Mutex
	acknowledged := map[int]int{}
	var wg sync.WaitGroup
	for w, s := range stores {
		wg.Go(func() {
			for i := 1; i <= 40; i++ {
				if err := s.Write(t.Context(), uri(w), fmt.Sprint(i), memory.Origin{}); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acknowledged[w] = i
				least := maps.Clone(acknowledged)
				mu.Unlock()
				for of, min := range least {
					text, err := s.Read(t.Context(), uri(of))
					got := 0
					if err == nil {
						_, err = fmt.Sscan(text, &got)
					}
					if err != nil || got < min {
						t.Errorf("%d reads %q of %d, which was acknowledged %d before: %v", w, text, of, min, err)
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestForgottenBytes: deleted notes leave the stream.
func TestForgottenBytes(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	const secret = "hunter2"
	for i := range 20 {
		must.Do(t, a.Write(t.Context(), fmt.Sprintf("memory://user/n%d", i), secret, memory.Origin{}))
	}
	long := slices.Repeat([]memory.Message{{Role: "user", Text: strings.Repeat(secret+" ", 20000)}}, 6)
	_, err := a.Archive(t.Context(), "s1", "k", long, memory.Origin{})
	must.Do(t, err)
	must.Do(t, b.Delete(t.Context(), "memory://"))
	end, err := a.s.Messages.LastSequence(t.Context(), streams.StreamMemory)
	must.Do(t, err)
	for m, err := range a.s.Messages.UpTo(t.Context(), streams.StreamMemory, ">", 0, end) {
		if must.Do(t, err); strings.Contains(string(m.Data), secret) {
			t.Errorf("%s still holds it, %d bytes", m.Subject, len(m.Data))
		}
	}
	must.Do(t, a.Write(t.Context(), "memory://user/n1", "again", memory.Origin{}))
	if got := contents(t, b); len(got) != 1 {
		t.Errorf("after a note was written again: %v", got)
	}
}

// TestForeign: a message of a later release, or a damaged one, stops the calls that would
// miss it, with an error. Other calls succeed.
func TestForeign(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	must.Do(t, a.Write(t.Context(), "memory://user/a", "known", memory.Origin{}))
	for _, body := range []string{`{"schema":2,"note":{"uri":"memory://user/b","text":"x"}}`, `{"later":{}}`, `not JSON`, `{"note":{"uri":"http://x"}}`, `{"note":{"uri":"memory://user/b","vector":{"model":"m","numbers":"AADAfw=="}}}`} {
		_, err := a.s.Messages.Publish(t.Context(), &nats.Msg{Subject: a.of + noteKey("memory://user/b") + ".0", Data: []byte(body)})
		must.Do(t, err)
		_, err = b.Read(t.Context(), "memory://user/a")
		if !errors.Is(err, ErrFormat) {
			t.Errorf("with %s in the stream: %v", body, err)
		}
		remedy := regexp.MustCompile(`an empty message on (rath\.memory\.\S+),`).FindStringSubmatch(fmt.Sprint(err))
		if remedy == nil {
			t.Fatalf("the error has no remedy: %v", err)
		}
		_, err = a.s.Messages.Publish(t.Context(), &nats.Msg{Subject: remedy[1]})
		must.Do(t, err)
		if text, err := b.Read(t.Context(), "memory://user/a"); err != nil || text != "known" {
			t.Errorf("after it was given up: %q, %v", text, err)
		}
	}
	must.Do(t, open(t, a.s, "other").Write(t.Context(), "memory://user/a", "x", memory.Origin{}))
	_, err := a.s.Messages.Publish(t.Context(), &nats.Msg{Subject: a.of + noteKey("memory://user/b") + ".0", Data: []byte(`{"note":{"uri":"memory://user/b","text":"mended"},"zone":"next"}`)})
	must.Do(t, err)
	if text, err := b.Read(t.Context(), "memory://user/b"); err != nil || text != "mended" {
		t.Errorf("after it was mended: %q, %v", text, err)
	}
}

// TestBounded: a call ends with its context, and a full memory returns an error.
func TestBounded(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	small, err := Open(a.s, "acme", "small", &Options{MaxNotes: 2})
	must.Do(t, err)
	for i := range 2 {
		must.Do(t, small.Write(t.Context(), fmt.Sprint("memory://user/", i), "x", memory.Origin{}))
	}
	if err := small.Write(t.Context(), "memory://user/3", "x", memory.Origin{}); !errors.Is(err, memory.ErrFull) {
		t.Errorf("a third note of two: %v", err)
	}
	a.turn <- struct{}{} // another call reads, and does not end
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error)
	go func() { _, err := a.Read(ctx, "memory://user/1"); got <- err }()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("a read whose context ended: %v", err)
	}
	<-a.turn
	if _, err := a.Read(t.Context(), "memory://user/1"); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("a read after that: %v", err)
	}
	for _, bad := range []string{"", "a.b", "a b", "*"} {
		if _, err := Open(a.s, "acme", bad, nil); err == nil {
			t.Errorf("a memory is named %q", bad)
		}
	}
}
