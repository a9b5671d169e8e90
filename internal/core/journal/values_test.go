package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// TestValues: each version of each session of a random history reads as it was at its
// commit, with and without snapshots, and forged references are rejected.
func TestValues(t *testing.T) {
	h := newTheatre(t, 42)
	type value struct {
		link  session.Link
		shown shownSession
	}
	var all []value
	for i := range 150 {
		h.act()
		for _, k := range h.keys {
			s := h.writer(k).Session()
			if l, ok := s.Link(); ok && (len(all) == 0 || all[len(all)-1].link != l) {
				all = append(all, value{l, showSession(s)})
			}
		}
		if i%40 == 39 {
			for _, k := range h.keys {
				must.Do(t, save(t.Context(), h.log, h.writer(k)))
			}
		}
	}
	for name, log := range map[string]commitlog.Log{"with snapshots": h.log, "without": plainLog{h.log}} {
		values := NewValues(log)
		for i, v := range all {
			switch i % 6 {
			case 0:
				values = NewValues(log)
			case 3:
				values.Forget()
			}
			s, err := values.Link(t.Context(), v.link)
			if err != nil {
				t.Fatalf("%s: Link(%+v): %v", name, v.link, err)
			}
			if got := showSession(s); fmt.Sprint(got) != fmt.Sprint(v.shown) {
				t.Fatalf("%s: %s reads as\n%+v, was\n%+v", name, v.link.Ref, got, v.shown)
			}
			if v.link.Version > 0 {
				if s, err := values.At(t.Context(), v.link.Ref); err != nil || s.Ref() != v.link.Ref || s.Len() != v.shown.Len || s.Usage() != v.shown.Usage {
					t.Fatalf("%s: At(%s) = %s, %d chunks, %v", name, v.link.Ref, s.Ref(), s.Len(), err)
				}
			}
			if i%10 != 0 {
				continue
			}
			for what, change := range map[string]func(*session.Link){
				"another hash":    func(l *session.Link) { l.Hash[0]++ },
				"another commit":  func(l *session.Link) { l.Seq++ },
				"no commit":       func(l *session.Link) { l.Seq = 0 },
				"another version": func(l *session.Link) { l.Version += 1000 },
				"another session": func(l *session.Link) { l.ID += "x" },
				"another tenant":  func(l *session.Link) { l.Tenant += "x" },
			} {
				l := v.link
				change(&l)
				if s, err := NewValues(log).Link(t.Context(), l); !errors.Is(err, session.ErrForeign) && !errors.Is(err, session.ErrNotFound) {
					t.Fatalf("%s: a reference with %s gives %s, %v", name, what, s.Ref(), err)
				}
			}
		}
		newest, err := values.At(t.Context(), session.Ref{Key: h.keys[0]})
		if want := h.writer(h.keys[0]).Session().Ref(); err != nil || newest.Ref() != want {
			t.Errorf("%s: the newest is %s, %v; want %s", name, newest.Ref(), err, want)
		}
	}
}

// TestValuesAreBounded: old values make room, and are folded again.
func TestValuesAreBounded(t *testing.T) {
	log := &commitlog.Memory{}
	w := long(t, log, longKey, 400)
	values := NewValues(log)
	values.Keep(w.Session())
	l, _ := w.Session().Link()
	for i := range maxValues + 10 {
		s := session.Open(session.Key{Tenant: "t", ID: session.ID(fmt.Sprint("s", i))}, "r").MadeBy(1, session.Hash{1}, 0)
		values.Keep(s)
		values.Keep(s)
	}
	if len(values.known) != maxValues || len(values.order) != maxValues || len(values.last) != maxValues {
		t.Errorf("%d values, %d in order, %d by version", len(values.known), len(values.order), len(values.last))
	}
	if s, err := values.Link(t.Context(), l); err != nil || s.Len() != 400 {
		t.Errorf("a value that made room: %d chunks, %v", s.Len(), err)
	}
	values.Keep(w.Session().With(session.UserText("pending")))
	values.Keep(session.Session{})
}

// circle is a log in which two sessions claim to be forks of each other, as only a
// forger could write it.
type circle struct{ commitlog.Log }

func (circle) Read(_ context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	return func(yield func(commitlog.Entry, error) bool) {
		other := session.Key{Tenant: k.Tenant, ID: "a"}
		if k.ID == "a" {
			other.ID = "b"
		}
		open := session.OpenedEvent(session.Opening{Kind: session.OpenFork, Parents: []session.Link{{Ref: session.Ref{Key: other}, Seq: 1}}})
		yield(commitlog.Entry{Commit: commitlog.Commit{Key: k, Root: "a", Seq: 1, Events: []session.Event{open}}, At: commitlog.Position{Seq: 1}}, nil)
	}
}

func TestValuesRefuseCircles(t *testing.T) {
	_, err := NewValues(circle{}).At(t.Context(), session.Ref{Key: session.Key{Tenant: "t", ID: "a"}})
	if !errors.Is(err, session.ErrForeign) {
		t.Errorf("a circle of references: %.200v", err)
	}
	if len(err.Error()) > 1000 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

// TestNewestAfterAnOlderOne: the newest version of a session is read as such after an older
// one of the same commit was, and kept.
func TestNewestAfterAnOlderOne(t *testing.T) {
	var log commitlog.Memory
	k := session.Key{Tenant: session.DefaultTenant, ID: "two"}
	c := commitlog.Commit{Key: k, Seq: 1, Root: k.ID, Epoch: 1, Events: []session.Event{
		session.OpenedEvent(session.Opening{Kind: session.OpenLeaf}), session.ChunkEvent(session.UserText("one")), session.ChunkEvent(session.UserText("two")),
	}}
	must.Get(log.Append(t.Context(), commitlog.Position{}, c))(t)
	values := NewValues(&log)
	newest := must.Get(values.At(t.Context(), session.Ref{Key: k}))(t).Ref().Version
	values.Forget()
	values.Keep(must.Get(values.At(t.Context(), session.Ref{Key: k, Version: newest - 1}))(t))
	if s := must.Get(values.At(t.Context(), session.Ref{Key: k}))(t); s.Ref().Version != newest || s.Len() != 2 {
		t.Errorf("the newest version is %d, with %d rows; want %d", s.Ref().Version, s.Len(), newest)
	}
}

// countingLog counts the commits that are read.
type countingLog struct {
	commitlog.Log
	n int
}

func (c *countingLog) Read(ctx context.Context, k session.Key, after commitlog.Position) iter.Seq2[commitlog.Entry, error] {
	return func(yield func(commitlog.Entry, error) bool) {
		for e, err := range c.Log.Read(ctx, k, after) {
			if c.n++; !yield(e, err) {
				return
			}
		}
	}
}

// TestNewestContinues: a read of the newest version returns the naive fold's value after
// each commit of random histories, also when older values are read and kept between them,
// and reads only the commits since the last such read.
func TestNewestContinues(t *testing.T) {
	for seed := range uint64(30) {
		h := newTheatre(t, seed)
		count := &countingLog{Log: h.log}
		values := NewValues(count)
		read := map[session.Key]uint64{}
		for range 80 {
			h.act()
			k, _ := pick(h.r, h.keys)
			want, wantErr := NewValues(plainLog{h.log}).At(t.Context(), session.Ref{Key: k})
			count.n = 0
			got, err := values.At(t.Context(), session.Ref{Key: k})
			if fmt.Sprint(err) != fmt.Sprint(wantErr) || fmt.Sprint(showSession(got)) != fmt.Sprint(showSession(want)) {
				t.Fatalf("seed %d: the newest of %s is %v\n%+v, want %v\n%+v", seed, k, err, showSession(got), wantErr, showSession(want))
			}
			if err != nil {
				continue
			}
			l, _ := got.Link()
			if from, ok := read[k]; ok && uint64(count.n) != l.Seq-from {
				// Ancestors that are not cached are read, too.
				t.Fatalf("seed %d: %d commits read from %d to %d of %s", seed, count.n, from, l.Seq, k)
			}
			read[k] = l.Seq
			if l.Version > 0 { // may end in the middle of a commit
				if old, err := values.At(t.Context(), session.Ref{Key: k, Version: 1 + session.Version(h.r.Uint64N(uint64(l.Version)))}); err == nil {
					values.Keep(old)
				}
			}
			if h.r.IntN(20) == 0 {
				values.drop(k)
				delete(read, k)
			}
		}
	}
}
