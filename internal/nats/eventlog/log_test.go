package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/offload"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/session"
)

func TestLogReadsWhatWasAppended(t *testing.T) {
	c := layer.Open(t)
	l := c.Log()
	a, b := sessiontest.Key("a"), sessiontest.Key("b")
	sessiontest.Grow(t, l, b, commitlog.Position{}, 2)
	end := sessiontest.Grow(t, l, a, commitlog.Position{}, 5)
	entries := sessiontest.ReadAll(t, l, a, commitlog.Position{})
	if len(entries) != 5 || entries[4].At != end {
		t.Fatalf("read %d entries, want 5 up to %v", len(entries), end)
	}
	var at commitlog.Position
	for i, e := range entries {
		want := sessiontest.Commit(a, at, fmt.Sprintf("text %d", i+1))
		raw := must.Get(commitlog.Encode(want))(t)
		if e.Raw != string(raw) || e.At.Hash != commitlog.HashOf(raw) {
			t.Errorf("entry %d is %s, want %s", i, e.Raw, raw)
		}
		at = e.At
	}
	for i := range entries {
		if tail := sessiontest.ReadAll(t, l, a, entries[i].At); len(tail) != 4-i {
			t.Errorf("after commit %d: %d entries", i+1, len(tail))
		}
	}
	last := must.Get(l.Last(t.Context(), a))(t)
	if diff := cmp.Diff(entries[4], last); diff != "" {
		t.Errorf("Last (-want +got):\n%s", diff)
	}
	for _, k := range []session.Key{sessiontest.Key("absent"), {Tenant: "other", ID: a.ID}} {
		if _, err := l.Last(t.Context(), k); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("Last of %s: %v", k, err)
		}
		if got := sessiontest.ReadAll(t, l, k, commitlog.Position{}); len(got) != 0 {
			t.Errorf("Read of %s: %v", k, got)
		}
	}
}

// TestLogPages reads more than one page, from the start and from within.
func TestLogPages(t *testing.T) {
	srv := natstest.Start(t, &natsserver.Options{Lazy: true})
	o := streamstest.NodeOptions(srv)
	o.Level = streams.Lazy
	c := layer.Dial(t, o)
	must.Do(t, c.streams.Provision(t.Context()))
	l := c.Log()
	a, b := sessiontest.Key("a"), sessiontest.Key("b")
	n := 2*conn.PageMessages + 10
	var at, other commitlog.Position
	for range n {
		at, other = sessiontest.Grow(t, l, a, at, 1), sessiontest.Grow(t, l, b, other, 1)
	}
	entries := sessiontest.ReadAll(t, l, a, commitlog.Position{})
	if len(entries) != n {
		t.Fatalf("read %d, want %d", len(entries), n)
	}
	for _, i := range []int{0, 1, n / 2, n - 2} {
		if tail := sessiontest.ReadAll(t, l, a, entries[i].At); len(tail) != n-i-1 {
			t.Errorf("after commit %d: %d entries, want %d", i+1, len(tail), n-i-1)
		}
	}
	// A reader may stop early.
	for range l.Read(t.Context(), a, commitlog.Position{}) {
		break
	}
}

func TestAppendConflict(t *testing.T) {
	c := layer.Open(t)
	l := c.Log()
	k := sessiontest.Key("s")
	first := sessiontest.Grow(t, l, k, commitlog.Position{}, 1)
	second := sessiontest.Grow(t, l, k, first, 1)
	for name, at := range map[string]commitlog.Position{"born twice": {}, "zombie": first} {
		if _, err := l.Append(t.Context(), at, sessiontest.Commit(k, at, "other")); !errors.Is(err, session.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The very same commit again is the same commit.
	if pos, err := l.Append(t.Context(), first, sessiontest.Commit(k, first, "text 2")); err != nil || pos != second {
		t.Errorf("the same bytes again: %v, %v, want %v", pos, err, second)
	}
	if n := len(sessiontest.ReadAll(t, l, k, commitlog.Position{})); n != 2 {
		t.Errorf("%d commits, want 2", n)
	}
	ahead := commitlog.Position{Seq: 7, Token: second.Token + 100, Hash: second.Hash}
	if _, err := l.Append(t.Context(), ahead, sessiontest.Commit(k, ahead, "x")); !errors.Is(err, session.ErrConflict) {
		t.Errorf("ahead of the log: %v", err)
	}
	absent := sessiontest.Key("absent")
	if _, err := l.Append(t.Context(), second, sessiontest.Commit(absent, second, "x")); !errors.Is(err, session.ErrConflict) {
		t.Errorf("after a position of an empty log: %v", err)
	}
}

func TestAppendRefuses(t *testing.T) {
	c := layer.Open(t)
	l := c.Log()
	k := sessiontest.Key("s")
	at := sessiontest.Grow(t, l, k, commitlog.Position{}, 1)
	good := sessiontest.Commit(k, at, "x")
	tests := map[string]func(c *commitlog.Commit){
		"wrong seq":       func(c *commitlog.Commit) { c.Seq = 5 },
		"wrong prev":      func(c *commitlog.Commit) { c.Prev = session.Hash{} },
		"no events":       func(c *commitlog.Commit) { c.Events = nil },
		"not JSON":        func(c *commitlog.Commit) { c.Events[0].Data = "{" },
		"no data":         func(c *commitlog.Commit) { c.Events[0].Data = "" },
		"not minted":      func(c *commitlog.Commit) { c.ID = "plain" },
		"wildcard tenant": func(c *commitlog.Commit) { c.Tenant = ">" },
	}
	for name, spoil := range tests {
		bad := good
		bad.Events = append([]session.Event(nil), good.Events...)
		spoil(&bad)
		if _, err := l.Append(t.Context(), at, bad); err == nil {
			t.Errorf("%s: stored", name)
		}
	}
	big := good
	big.Events = nil
	for range 6000 { // each of them too small for a blob
		big.Events = append(big.Events, session.Event{Kind: "x", Schema: 1, Data: `"` + strings.Repeat("x", 100) + `"`})
	}
	if _, err := l.Append(t.Context(), at, big); !errors.Is(err, session.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if n := len(sessiontest.ReadAll(t, l, k, commitlog.Position{})); n != 1 {
		t.Errorf("%d commits, want 1", n)
	}
}

// TestForeignMessages puts messages that are not commits on a session's subject. Every
// reader skips them and a writer continues after them.
func TestForeignMessages(t *testing.T) {
	ctx := t.Context()
	c := layer.Open(t)
	l := c.Log()
	k := sessiontest.Key("s")
	_, subject := must.Pair(EventSubject(k))(t)
	at := sessiontest.Grow(t, l, k, commitlog.Position{}, 3)
	entries := sessiontest.ReadAll(t, l, k, commitlog.Position{})
	other := sessiontest.Key("t")
	elsewhere := must.Get(commitlog.Encode(sessiontest.Commit(other, at, "x")))(t)
	farAhead := sessiontest.Commit(k, commitlog.Position{Seq: 98, Hash: at.Hash}, "x")
	ahead := must.Get(commitlog.Encode(farAhead))(t)
	foreign := map[string]string{
		"garbage":             "\x00garbage",
		"empty":               "",
		"JSON":                `{"format":1}`,
		"an older commit":     entries[1].Raw,
		"the newest commit":   entries[2].Raw,
		"another session's":   string(elsewhere),
		"far ahead":           string(ahead),
		"a server's answer":   `{"stream":"TASKS","seq":1}`,
		"with a space at end": entries[2].Raw + " ",
	}
	for name, data := range foreign {
		for _, cas := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/cas=%v", name, cas), func(t *testing.T) {
				if cas {
					m := must.Get(c.messages.LeaderLast(ctx, streams.EventStream(1, partition(k)), subject))(t)
					must.Get(c.messages.PublishExpecting(ctx, subject, m.Seq, nil, []byte(data)))(t)
				} else if _, err := c.conn.JS.Publish(ctx, subject, []byte(data)); err != nil {
					t.Fatal(err)
				}
				before := len(sessiontest.ReadAll(t, l, k, commitlog.Position{}))
				if before != int(at.Seq) {
					t.Fatalf("%d commits, want %d", before, at.Seq)
				}
				last, err := l.Last(ctx, k)
				if err != nil || last.At != at {
					t.Errorf("Last is at %v, %v; want %v", last.At, err, at)
				}
				zombie := commitlog.Position{Seq: entries[0].At.Seq, Token: entries[0].At.Token, Hash: entries[0].At.Hash}
				if _, err := l.Append(ctx, zombie, sessiontest.Commit(k, zombie, "zombie")); !errors.Is(err, session.ErrConflict) {
					t.Errorf("a zombie behind foreign messages: %v", err)
				}
				at = sessiontest.Grow(t, l, k, at, 1)
				if last, err := l.Last(ctx, k); err != nil || last.At != at {
					t.Errorf("after going on Last is at %v, %v; want %v", last.At, err, at)
				}
			})
		}
	}
}

func partition(k session.Key) uint32 {
	_, p, _ := k.ID.Locate()
	return p
}

// TestLaterFormat stops at a commit of a later release instead of skipping it.
func TestLaterFormat(t *testing.T) {
	ctx := t.Context()
	c := layer.Open(t)
	l := c.Log()
	k := sessiontest.Key("s")
	_, subject := must.Pair(EventSubject(k))(t)
	at := sessiontest.Grow(t, l, k, commitlog.Position{}, 1)
	must.Get(c.messages.PublishExpecting(ctx, subject, at.Token, nil, []byte(`{"format":99}`)))(t)
	var got error
	for _, err := range l.Read(ctx, k, commitlog.Position{}) {
		got = err
	}
	if !errors.Is(got, session.ErrTooOld) {
		t.Errorf("Read: %v", got)
	}
	if _, err := l.Last(ctx, k); !errors.Is(err, session.ErrTooOld) {
		t.Errorf("Last: %v", err)
	}
	if _, err := l.Append(ctx, at, sessiontest.Commit(k, at, "x")); !errors.Is(err, session.ErrConflict) {
		t.Errorf("Append: %v", err)
	}
}

// TestRacingWriters lets several connections write one session; each position
// is extended once.
func TestRacingWriters(t *testing.T) {
	srv := natstest.Start(t, &natsserver.Options{Lazy: true})
	o := streamstest.NodeOptions(srv)
	o.Level = streams.Lazy
	must.Do(t, layer.Dial(t, o).streams.Provision(t.Context()))
	const writers, each = 4, 50
	k := sessiontest.Key("s")
	var (
		wg   sync.WaitGroup
		won  [writers]int
		errs [writers]error
	)
	for w := range writers {
		c := layer.Dial(t, o)
		wg.Go(func() {
			l := c.Log()
			for i := range each {
				at := commitlog.Position{}
				last, err := l.Last(t.Context(), k)
				if err == nil {
					at = last.At
				} else if !errors.Is(err, session.ErrNotFound) {
					errs[w] = err
					return
				}
				_, err = l.Append(t.Context(), at, sessiontest.Commit(k, at, fmt.Sprintf("%d of %d", i, w)))
				switch {
				case err == nil:
					won[w]++
				case !errors.Is(err, session.ErrConflict):
					errs[w] = err
					return
				}
			}
		})
	}
	wg.Wait()
	must.Do(t, errors.Join(errs[:]...))
	total := 0
	for _, n := range won {
		total += n
	}
	c := layer.Dial(t, o)
	if n := len(sessiontest.ReadAll(t, c.Log(), k, commitlog.Position{})); n != total || total == 0 {
		t.Errorf("%d commits in the log, %d appends succeeded", n, total)
	}
	if n := stored64(t, c, k); n != uint64(total) {
		t.Errorf("%d messages stored, %d appends succeeded", n, total)
	}
}

// TestLargeData keeps large data out of the commit, and gives it back.
func TestLargeData(t *testing.T) {
	ctx := t.Context()
	c := layer.Open(t)
	l := c.Log()
	k := sessiontest.Key("s")
	text := func(n int) session.Event {
		e := session.ChunkEvent(session.UserText(strings.Repeat("x", n)))
		e.Time = time.Unix(1, 0)
		return e
	}
	tests := map[string][]session.Event{
		"one large":   {text(10), text(offload.DefaultEvent + 1), text(3 << 20)},
		"many medium": {},
	}
	for range 60 {
		tests["many medium"] = append(tests["many medium"], text(20<<10))
	}
	var at commitlog.Position
	for name, events := range tests {
		t.Run(name, func(t *testing.T) {
			cm := commitlog.Commit{Key: k, Root: k.ID, Seq: at.Seq + 1, Epoch: 1, Prev: at.Hash, Events: events}
			before := at
			at = sessiontest.Append(t, l, at, cm)
			if again := sessiontest.Append(t, l, before, cm); again != at {
				t.Errorf("the same commit again: %v, want %v", again, at)
			}
			e := must.Get(l.Last(ctx, k))(t)
			if len(e.Raw) > offload.DefaultCommit+64<<10 {
				t.Errorf("the commit has %d bytes", len(e.Raw))
			}
			for i := range events {
				if e.Commit.Events[i].Data != events[i].Data {
					t.Errorf("data of event %d: %d bytes, want %d", i, len(e.Commit.Events[i].Data), len(events[i].Data))
				}
			}
			// A commit that was read can be appended elsewhere: the same bytes spill.
			cm2 := e.Commit
			cm2.Key, cm2.Root, cm2.Seq, cm2.Prev = sessiontest.Key("copy-"+strings.ReplaceAll(name, " ", "-")), k.ID, 1, session.Hash{}
			sessiontest.Append(t, l, commitlog.Position{}, cm2)
		})
	}
}

// suiteLog lets the suite put foreign bytes into a log.
type suiteLog struct {
	commitlog.Log
	commitlog.Snapshotter
	c *Logs
}

// Foul implements sessiontest.Fouler.
func (s suiteLog) Foul(ctx context.Context, k session.Key, raw []byte) error {
	_, subject, err := s.c.Place(k)
	if err != nil {
		return err
	}
	_, err = s.c.conn.JS.Publish(ctx, subject, raw)
	return err
}

func TestLogSuite(t *testing.T) {
	sessiontest.TestLog(t, func(t *testing.T) commitlog.Log {
		c := layer.Open(t)
		c.Place = func(k session.Key) (stream, subject string, err error) {
			// The suite's ids are not minted.
			return streams.EventStream(1, 0), streams.PrefixEvent + "1.0." + string(k.Tenant) + "." + string(k.ID), k.Valid()
		}
		l := c.Log()
		return suiteLog{l, l.(commitlog.Snapshotter), c}
	})
}
