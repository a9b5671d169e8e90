// Package sessiontest is the test suite of commitlog.Log, and provides a log that injects
// faults for tests of its users.
//
// A log's own tests call [TestLog] with a function that makes an empty log. A log must test
// its further promises (durability, partitions) itself.
package sessiontest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// Fouler is implemented by logs whose tests can put bytes where a session's
// commits lie, past the log's own checks. The suite then also checks that
// they are skipped.
type Fouler interface {
	Foul(ctx context.Context, k session.Key, raw []byte) error
}

// TestLog checks the contract of commitlog.Log and, if the log has it, of
// commitlog.Snapshotter. newLog returns an empty log; it is called once per
// subtest and may register its own cleanup.
func TestLog(t *testing.T, newLog func(t *testing.T) commitlog.Log) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, commitlog.Log)
	}{
		{"append and read", testAppend},
		{"empty log", testEmpty},
		{"positions", testPositions},
		{"conflicts", testConflicts},
		{"refused commits", testRefused},
		{"content is kept", testContent},
		{"tenants and sessions are separate", testSeparate},
		{"racing writers", testRace},
		{"readers while writing", testReaders},
		{"stop reading", testStop},
		{"ended context", testContext},
		{"large commits", testLarge},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newLog(t)) })
	}
	if f, ok := newLog(t).(Fouler); ok {
		t.Run("foreign bytes", func(t *testing.T) { testForeign(t, newLog(t), f) })
	}
	if _, ok := newLog(t).(commitlog.Snapshotter); ok {
		t.Run("snapshots", func(t *testing.T) { testSnapshots(t, newLog(t).(commitlog.Snapshotter)) })
	}
}

func key(tenant, id string) session.Key {
	return session.Key{Tenant: session.Tenant(tenant), ID: session.ID(id)}
}

// Next returns the commit of events that follows a position.
func Next(k session.Key, at commitlog.Position, events ...session.Event) commitlog.Commit {
	return commitlog.Commit{Key: k, Root: k.ID, Seq: at.Seq + 1, Epoch: 1, Prev: at.Hash, Events: events}
}

func say(text string) session.Event {
	e := session.ChunkEvent(session.UserText(text))
	e.Time = time.UnixMilli(1_700_000_000_123).UTC()
	return e
}

func add(t *testing.T, log commitlog.Log, k session.Key, at commitlog.Position, text string) commitlog.Position {
	t.Helper()
	pos, err := log.Append(t.Context(), at, Next(k, at, say(text)))
	if err != nil {
		t.Fatalf("Append %d to %s: %v", at.Seq+1, k, err)
	}
	return pos
}

func read(t *testing.T, log commitlog.Log, k session.Key, after commitlog.Position) (all []commitlog.Entry) {
	t.Helper()
	for e, err := range log.Read(t.Context(), k, after) {
		if err != nil {
			t.Fatalf("Read %s after %d: %v", k, after.Seq, err)
		}
		all = append(all, e)
	}
	return all
}

func texts(t *testing.T, entries []commitlog.Entry) (all []string) {
	t.Helper()
	for _, e := range entries {
		for _, ev := range e.Commit.Events {
			c := must.Get(session.DecodeChunk(ev))(t)
			all = append(all, c.Text())
		}
	}
	return all
}

func testAppend(t *testing.T, log commitlog.Log) {
	k := key("t", "s")
	var at commitlog.Position
	var want []commitlog.Position
	for i := range 5 {
		next := add(t, log, k, at, fmt.Sprint("chunk ", i))
		if next.Seq != uint64(i)+1 || next.Hash == (session.Hash{}) || next.Token <= at.Token {
			t.Errorf("commit %d is at %+v after %+v", i+1, next, at)
		}
		last, err := log.Last(t.Context(), k)
		if err != nil || last.At != next {
			t.Errorf("Last = %+v, %v; want %+v", last.At, err, next)
		}
		at = next
		want = append(want, at)
	}
	entries := read(t, log, k, commitlog.Position{})
	if got := texts(t, entries); !slices.Equal(got, []string{"chunk 0", "chunk 1", "chunk 2", "chunk 3", "chunk 4"}) {
		t.Errorf("Read yields %q", got)
	}
	var prev commitlog.Position
	for i, e := range entries {
		if e.At != want[i] {
			t.Errorf("commit %d is read at %+v, was appended at %+v", i+1, e.At, want[i])
		}
		if commitlog.HashOf([]byte(e.Raw)) != e.At.Hash {
			t.Errorf("commit %d: hash %s is not of its bytes", i+1, e.At.Hash.Short())
		}
		c, hash, err := commitlog.Successor(k, prev, []byte(e.Raw))
		if err != nil || hash != e.At.Hash {
			t.Errorf("commit %d does not follow the one before: %v", i+1, err)
		}
		if c.Seq != e.Commit.Seq || c.Prev != e.Commit.Prev || len(c.Events) != len(e.Commit.Events) {
			t.Errorf("commit %d: bytes say %+v, entry says %+v", i+1, c, e.Commit)
		}
		prev = e.At
	}
}

func testEmpty(t *testing.T, log commitlog.Log) {
	k := key("t", "none")
	if got := read(t, log, k, commitlog.Position{}); len(got) != 0 {
		t.Errorf("an empty log yields %d commits", len(got))
	}
	if _, err := log.Last(t.Context(), k); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Last of an empty log: %v, want ErrNotFound", err)
	}
}

func testPositions(t *testing.T, log commitlog.Log) {
	k, noise := key("t", "s"), key("t", "other")
	var at, other commitlog.Position
	var all []commitlog.Position
	for i := range 20 {
		at = add(t, log, k, at, fmt.Sprint(i))
		other = add(t, log, noise, other, "noise")
		all = append(all, at)
	}
	for i, after := range all {
		entries := read(t, log, k, after)
		if len(entries) != len(all)-i-1 {
			t.Fatalf("Read after %d yields %d commits, want %d", after.Seq, len(entries), len(all)-i-1)
		}
		for n, e := range entries {
			if e.At != all[i+1+n] || e.Commit.Key != k {
				t.Fatalf("Read after %d yields %+v of %s, want %+v", after.Seq, e.At, e.Commit.Key, all[i+1+n])
			}
		}
	}
	// A reader may continue from its position while others append.
	end := all[len(all)-1]
	next := add(t, log, k, end, "more")
	if got := read(t, log, k, end); len(got) != 1 || got[0].At != next {
		t.Errorf("Read after the former end yields %d commits", len(got))
	}
}

func testConflicts(t *testing.T, log commitlog.Log) {
	k := key("t", "s")
	first := add(t, log, k, commitlog.Position{}, "one")
	second := add(t, log, k, first, "two")
	for name, at := range map[string]commitlog.Position{
		"an older position": first,
		"the empty log":     {},
	} {
		if _, err := log.Append(t.Context(), at, Next(k, at, say("conflict"))); !errors.Is(err, session.ErrConflict) {
			t.Errorf("append to %s: %v, want ErrConflict", name, err)
		}
	}
	// A position that the log never had.
	wild := commitlog.Position{Seq: 7, Token: second.Token + 1000, Hash: session.Hash{1}}
	if _, err := log.Append(t.Context(), wild, Next(k, wild, say("conflict"))); !errors.Is(err, session.ErrConflict) {
		t.Errorf("append to a position of the future: %v, want ErrConflict", err)
	}
	if got := texts(t, read(t, log, k, commitlog.Position{})); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("after conflicts the log holds %q", got)
	}
	add(t, log, k, second, "three")
}

func testRefused(t *testing.T, log commitlog.Log) {
	k := key("t", "s")
	at := add(t, log, k, commitlog.Position{}, "one")
	bad := func(change func(*commitlog.Commit)) commitlog.Commit {
		c := Next(k, at, say("x"))
		change(&c)
		return c
	}
	for name, c := range map[string]commitlog.Commit{
		"a wrong number":   bad(func(c *commitlog.Commit) { c.Seq = 9 }),
		"a wrong hash":     bad(func(c *commitlog.Commit) { c.Prev = session.Hash{1} }),
		"no events":        bad(func(c *commitlog.Commit) { c.Events = nil }),
		"an event of none": bad(func(c *commitlog.Commit) { c.Events = []session.Event{{Kind: "a.b", Schema: 1}} }),
		"data that is no canonical JSON": bad(func(c *commitlog.Commit) {
			c.Events = []session.Event{{Kind: "a.b", Schema: 1, Data: `{"b":1, "a":2}`}}
		}),
	} {
		if pos, err := log.Append(t.Context(), at, c); err == nil {
			t.Errorf("a commit with %s was appended at %+v", name, pos)
		}
	}
	add(t, log, k, at, "two")
	if got := texts(t, read(t, log, k, commitlog.Position{})); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("the log holds %q", got)
	}
}

func testContent(t *testing.T, log commitlog.Log) {
	k := key("tenant_1", "Session-2")
	events := []session.Event{
		session.OpenedEvent(session.Opening{Kind: session.OpenLeaf, Run: "r"}),
		say("a\n\"b\" <c> \u2028 \u00e9 \U0001F600"),
		{Kind: "step.done", Schema: 3, Batch: "r/0.1", Data: `{"a":[1,-2,null,true],"b":"x"}`},
		session.PlacedEvent(session.Placement{Backend: "local", Spec: "./x", Epoch: 1 << 60}),
	}
	for i := range events {
		events[i].Time = time.UnixMilli(1_700_000_000_000 + int64(i)).UTC()
	}
	c := commitlog.Commit{Key: k, Root: "the-root", Seq: 1, Epoch: 1 << 60, Events: events}
	must.Get(log.Append(t.Context(), commitlog.Position{}, c))(t)
	got := read(t, log, k, commitlog.Position{})
	if len(got) != 1 {
		t.Fatalf("%d commits", len(got))
	}
	last, err := log.Last(t.Context(), k)
	if diff := cmp.Diff(got[0], last); diff != "" || err != nil {
		t.Errorf("Last differs from Read: %v\n%s", err, diff)
	}
	for i := range last.Commit.Events { // a log may keep data elsewhere and say so
		last.Commit.Events[i].Blob = c.Events[i].Blob
	}
	if diff := cmp.Diff(c, last.Commit); diff != "" {
		t.Errorf("commit differs (-appended +read):\n%s", diff)
	}
}

func testSeparate(t *testing.T, log commitlog.Log) {
	keys := []session.Key{key("a", "s"), key("b", "s"), key("a", "s2"), key("as", "2")}
	at := map[session.Key]commitlog.Position{}
	for i := range 3 {
		for _, k := range keys {
			at[k] = add(t, log, k, at[k], fmt.Sprintf("%s %d", k, i))
		}
	}
	for _, k := range keys {
		want := []string{k.String() + " 0", k.String() + " 1", k.String() + " 2"}
		if got := texts(t, read(t, log, k, commitlog.Position{})); !slices.Equal(got, want) {
			t.Errorf("%s holds %q", k, got)
		}
	}
}

// testRace runs eight writers that each assume to be the only one. Each position is taken
// once, by the writer whose append succeeded.
func testRace(t *testing.T, log commitlog.Log) {
	const writers, rounds = 8, 12
	k := key("t", "s")
	var mu sync.Mutex
	won := map[uint64]string{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			var at commitlog.Position
			for mine := 0; mine < rounds; {
				text := fmt.Sprintf("writer %d commit %d", w, mine)
				next, err := log.Append(t.Context(), at, Next(k, at, say(text)))
				switch {
				case err == nil:
					mu.Lock()
					if other, taken := won[next.Seq]; taken {
						t.Errorf("position %d was given to %q and to %q", next.Seq, other, text)
					}
					won[next.Seq] = text
					mu.Unlock()
					at = next
					mine++
				case errors.Is(err, session.ErrConflict):
					last, err := log.Last(t.Context(), k)
					if err != nil {
						t.Errorf("Last: %v", err)
						return
					}
					at = last.At
				default:
					t.Errorf("Append: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	entries := read(t, log, k, commitlog.Position{})
	if len(entries) != writers*rounds || len(won) != len(entries) {
		t.Fatalf("%d commits were acknowledged, %d are read, want %d", len(won), len(entries), writers*rounds)
	}
	for i, text := range texts(t, entries) {
		if won[uint64(i)+1] != text {
			t.Errorf("position %d holds %q, was given to %q", i+1, text, won[uint64(i)+1])
		}
	}
}

// testReaders: a reader sees a prefix of the log that has all that was
// acknowledged before it began.
func testReaders(t *testing.T, log commitlog.Log) {
	k := key("t", "s")
	const n = 60
	var mu sync.Mutex
	acked := commitlog.Position{}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		var at commitlog.Position
		for i := range n {
			next, err := log.Append(t.Context(), at, Next(k, at, say(fmt.Sprint(i))))
			if err != nil {
				t.Errorf("Append: %v", err)
				return
			}
			at = next
			mu.Lock()
			acked = at
			mu.Unlock()
		}
	})
	for range 2 {
		wg.Go(func() {
			for {
				mu.Lock()
				known := acked
				mu.Unlock()
				var prev commitlog.Position
				for e, err := range log.Read(t.Context(), k, commitlog.Position{}) {
					if err != nil || e.At.Seq != prev.Seq+1 || e.Commit.Prev != prev.Hash {
						t.Errorf("after %d comes %d: %v", prev.Seq, e.At.Seq, err)
						return
					}
					prev = e.At
				}
				last, err := log.Last(t.Context(), k)
				if prev.Seq < known.Seq || known.Seq > 0 && (err != nil || last.At.Seq < known.Seq) {
					t.Errorf("commit %d is acknowledged, Read ends at %d, Last is %d: %v", known.Seq, prev.Seq, last.At.Seq, err)
					return
				}
				select {
				case <-done:
					if prev.Seq == n {
						return
					}
				case <-t.Context().Done():
					return
				default:
				}
			}
		})
	}
	wg.Wait()
}

func testStop(t *testing.T, log commitlog.Log) {
	k := key("t", "s")
	var at commitlog.Position
	for i := range 5 {
		at = add(t, log, k, at, fmt.Sprint(i))
	}
	for range 50 { // a reader that stops early holds nothing
		n := 0
		for _, err := range log.Read(t.Context(), k, commitlog.Position{}) {
			must.Do(t, err)
			if n++; n == 2 {
				break
			}
		}
	}
	add(t, log, k, at, "still works")
}

func testContext(t *testing.T, log commitlog.Log) {
	k := key("t", "s")
	at := add(t, log, k, commitlog.Position{}, "one")
	add(t, log, k, at, "two")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := log.Last(ctx, k); !errors.Is(err, context.Canceled) {
		t.Errorf("Last with an ended context: %v", err)
	}
	var got error
	for _, err := range log.Read(ctx, k, commitlog.Position{}) {
		got = err
	}
	if !errors.Is(got, context.Canceled) {
		t.Errorf("Read with an ended context: %v", got)
	}
	end, err := log.Last(t.Context(), k)
	must.Do(t, err)
	// An append may continue until the outcome is certain; the reported outcome must be true.
	pos, err := log.Append(ctx, end.At, Next(k, end.At, say("three")))
	n := len(read(t, log, k, commitlog.Position{}))
	switch {
	case err == nil && (n != 3 || pos.Seq != 3):
		t.Errorf("Append says %+v, the log has %d commits", pos, n)
	case errors.Is(err, context.Canceled) && n != 2:
		t.Errorf("Append says %v, the log has %d commits", err, n)
	case err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, session.ErrUnavailable):
		t.Errorf("Append with an ended context: %v", err)
	}
}

func testLarge(t *testing.T, log commitlog.Log) {
	k := key("t", "s")
	text := strings.Repeat("0123456789abcdef", 600<<10/16)
	at := add(t, log, k, commitlog.Position{}, text)
	if got := texts(t, read(t, log, k, commitlog.Position{})); len(got) != 1 || got[0] != text {
		t.Errorf("a chunk of %d bytes did not come back", len(text))
	}
	var many []session.Event
	for range 1100 {
		many = append(many, say(text[:1000]))
	}
	_, err := log.Append(t.Context(), at, Next(k, at, many...))
	if err != nil && !errors.Is(err, session.ErrTooLarge) {
		t.Fatalf("a commit of 1.1 MB: %v, want ErrTooLarge or success", err)
	}
	if last, lastErr := log.Last(t.Context(), k); lastErr != nil || (err == nil) != (last.At.Seq == 2) {
		t.Errorf("Append says %v, the log is at %d: %v", err, last.At.Seq, lastErr)
	}
}

func testForeign(t *testing.T, log commitlog.Log, f Fouler) {
	k := key("t", "s")
	at := add(t, log, k, commitlog.Position{}, "one")
	valid, err := commitlog.Encode(Next(k, at, say("two")))
	must.Do(t, err)
	stranger, err := commitlog.Encode(Next(key("t", "another"), at, say("stranger")))
	must.Do(t, err)
	skipped, err := commitlog.Encode(commitlog.Commit{Key: k, Root: k.ID, Seq: 3, Epoch: 1, Prev: at.Hash, Events: []session.Event{say("gap")}})
	must.Do(t, err)
	unchained, err := commitlog.Encode(commitlog.Commit{Key: k, Root: k.ID, Seq: 2, Epoch: 1, Prev: session.Hash{9}, Events: []session.Event{say("other")}})
	must.Do(t, err)
	for _, raw := range [][]byte{{}, []byte("hello"), []byte(`{"format":1}`), stranger, skipped, unchained, append([]byte{' '}, valid...)} {
		if err := f.Foul(t.Context(), k, raw); err != nil {
			t.Fatalf("Foul: %v", err)
		}
	}
	if got := texts(t, read(t, log, k, commitlog.Position{})); !slices.Equal(got, []string{"one"}) {
		t.Errorf("with foreign bytes the log holds %q", got)
	}
	last, err := log.Last(t.Context(), k)
	if err != nil || last.At.Seq != 1 {
		t.Fatalf("Last = %d, %v; want 1", last.At.Seq, err)
	}
	// A writer that reads the end again can continue.
	end := add(t, log, k, last.At, "two")
	add(t, log, k, end, "three")
	if got := texts(t, read(t, log, k, commitlog.Position{})); !slices.Equal(got, []string{"one", "two", "three"}) {
		t.Errorf("after foreign bytes the log holds %q", got)
	}
}

func testSnapshots(t *testing.T, s commitlog.Snapshotter) {
	ctx := t.Context()
	k, other := key("t", "s"), key("t2", "s")
	if _, _, err := s.Load(ctx, k); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Load of nothing: %v, want ErrNotFound", err)
	}
	if _, err := s.LoadPage(ctx, "t", strings.Repeat("0", 64)); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("LoadPage of nothing: %v, want ErrNotFound", err)
	}
	state := []byte("state one")
	for i := range uint64(3) {
		at := commitlog.Position{Seq: i + 1, Token: 10 * (i + 1), Hash: session.Hash{byte(i)}}
		if err := s.Save(ctx, k, at, state); err != nil {
			t.Fatalf("Save: %v", err)
		}
		got, data, err := s.Load(ctx, k)
		if err != nil || got != at || string(data) != string(state) {
			t.Errorf("Load = %+v, %q, %v; want %+v, %q", got, data, err, at, state)
		}
		state = append(state, '!')
	}
	if _, _, err := s.Load(ctx, other); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Load of another tenant's session: %v, want ErrNotFound", err)
	}
	page := []byte(strings.Repeat("page ", 100_000))
	digest := commitlog.HashOf(page).String()
	for range 2 { // saving a page again is harmless
		if err := s.SavePage(ctx, "t", digest, page); err != nil {
			t.Fatalf("SavePage: %v", err)
		}
	}
	got, err := s.LoadPage(ctx, "t", digest)
	if err != nil || string(got) != string(page) {
		t.Errorf("LoadPage: %d bytes, %v; want %d", len(got), err, len(page))
	}
	if _, err := s.LoadPage(ctx, "t2", digest); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("LoadPage of another tenant's page: %v, want ErrNotFound", err)
	}
}
