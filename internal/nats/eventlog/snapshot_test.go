package eventlog

import (
	"errors"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/session"
)

func TestSnapshots(t *testing.T) {
	ctx := t.Context()
	c := layer.Open(t)
	l := c.Log()
	s, ok := l.(commitlog.Snapshotter)
	if !ok {
		t.Fatal("the log keeps no snapshots")
	}
	k := sessiontest.Key("s")
	if _, _, err := s.Load(ctx, k); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("before the first one: %v", err)
	}
	two := sessiontest.Grow(t, l, k, commitlog.Position{}, 2)
	five := sessiontest.Grow(t, l, k, two, 3)
	check := func(want commitlog.Position, state string) {
		t.Helper()
		at, got, err := s.Load(ctx, k)
		if err != nil || at != want || string(got) != state {
			t.Errorf("Load: %v, %q, %v; want %v, %q", at, got, err, want, state)
		}
	}
	save := func(at commitlog.Position, state string) {
		t.Helper()
		must.Do(t, s.Save(ctx, k, at, []byte(state)))
	}
	save(two, "at two")
	check(two, "at two")
	save(five, "at five")
	check(five, "at five")
	save(two, "at two, late")
	check(five, "at five")
	if n := len(sessiontest.ReadAll(t, l, k, two)); n != 3 {
		t.Errorf("%d commits after the snapshot, want 3", n)
	}
	if err := s.Save(ctx, k, five, make([]byte, maxSnapshot+1)); !errors.Is(err, session.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
}

// TestNotASnapshot puts a message without a position where a snapshot lies: it
// is as good as none, and is replaced.
func TestNotASnapshot(t *testing.T) {
	ctx := t.Context()
	c := layer.Open(t)
	s := c.Log().(commitlog.Snapshotter)
	k := sessiontest.Key("s")
	must.Get(c.conn.JS.Publish(ctx, SnapSubject(k), []byte("no position")))(t)
	if _, _, err := s.Load(ctx, k); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	at := commitlog.Position{Seq: 1, Token: 1}
	must.Do(t, s.Save(ctx, k, at, []byte("x")))
	if got, state, err := s.Load(ctx, k); err != nil || got != at || string(state) != "x" {
		t.Errorf("got %v, %q, %v", got, state, err)
	}
}

func TestPages(t *testing.T) {
	ctx := t.Context()
	s := layer.Open(t).Log().(commitlog.Snapshotter)
	digest := strings.Repeat("ab", 32)
	if _, err := s.LoadPage(ctx, "one", digest); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("absent: %v", err)
	}
	for range 2 {
		must.Do(t, s.SavePage(ctx, "one", digest, []byte("page")))
	}
	if page, err := s.LoadPage(ctx, "one", digest); err != nil || string(page) != "page" {
		t.Errorf("got %q, %v", page, err)
	}
	if _, err := s.LoadPage(ctx, "two", digest); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("another tenant's: %v", err)
	}
	for _, bad := range []string{"", "a.b", ">", "*"} {
		if err := s.SavePage(ctx, "one", bad, nil); err == nil {
			t.Errorf("digest %q was accepted", bad)
		}
	}
}
