package session_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/session"
)

// world is a set of sessions over one in-memory log, driven without a runtime.
type world struct {
	t      testing.TB
	log    commitlog.Memory
	newest map[session.Key]session.Session
	known  map[session.Link]session.Session
	// fresh makes resolve fold the log again, so that no pointers are shared.
	fresh bool
}

func newWorld(t testing.TB) *world {
	return &world{t: t, newest: map[session.Key]session.Session{}, known: map[session.Link]session.Session{}}
}

func (w *world) resolve(l session.Link) (session.Session, error) {
	if !w.fresh {
		if s, ok := w.known[l]; ok {
			return s, nil
		}
		return session.Session{}, session.ErrNotFound
	}
	return w.fold(l.Key, l.Seq), nil
}

// fold reads a session from its log up to a commit; zero is its end.
func (w *world) fold(k session.Key, seq uint64) session.Session {
	w.t.Helper()
	s := session.Open(k, k.ID)
	for e, err := range w.log.Read(w.t.Context(), k, commitlog.Position{}) {
		must.Do(w.t, err)
		if e.At.Seq == 1 {
			s = session.Open(k, e.Commit.Root)
		}
		if s, err = commitlog.ApplyCommit(s, e, w.resolve); err != nil {
			w.t.Fatalf("fold %s at %d: %v", k, e.At.Seq, err)
		}
		if e.At.Seq == seq {
			break
		}
	}
	return s
}

func key(id string) session.Key {
	return session.Key{Tenant: session.DefaultTenant, ID: session.ID(id)}
}

func at(n int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(n)).UTC() }

// commit appends events to a session and returns its next value.
func (w *world) commit(k session.Key, events ...session.Event) session.Session {
	w.t.Helper()
	s, ok := w.newest[k]
	if !ok {
		s = session.Open(k, k.ID)
	}
	link, _ := s.Link()
	for i := range events {
		events[i].Time = at(int(link.Seq))
	}
	pos := commitlog.Position{Seq: link.Seq, Hash: link.Hash, Token: link.Token}
	next, err := w.log.Append(w.t.Context(), pos, commitlog.Commit{
		Key: k, Root: s.Root(), Seq: pos.Seq + 1, Epoch: 1, Prev: pos.Hash, Events: events,
	})
	if err != nil {
		w.t.Fatalf("append to %s: %v", k, err)
	}
	e, err := w.log.Last(w.t.Context(), k)
	if err != nil || e.At != next {
		w.t.Fatalf("Last = %v, %v; want %v", e.At, err, next)
	}
	if s, err = commitlog.ApplyCommit(s, e, w.resolve); err != nil {
		w.t.Fatalf("apply to %s: %v", k, err)
	}
	w.newest[k] = s
	l, ok := s.Link()
	if !ok {
		w.t.Fatalf("%s has no link", k)
	}
	w.known[l] = s
	return s
}

func (w *world) open(k session.Key, o session.Opening, events ...session.Event) session.Session {
	w.t.Helper()
	return w.commit(k, append([]session.Event{session.OpenedEvent(o)}, events...)...)
}

func (w *world) fork(k session.Key, kind string, parent session.Session) session.Session {
	w.t.Helper()
	l, ok := parent.Link()
	if !ok {
		w.t.Fatalf("%s is not committed", parent.Ref())
	}
	return w.open(k, session.Opening{Kind: kind, Parents: []session.Link{l}})
}

// naive is a reference implementation of a session: slices that are copied at each
// step.
type naive struct {
	texts []string
	calls map[int]int64 // model calls of its sources, with their tokens
	line  []mark        // the values it passed through by forking, nearest first
	place string
	root  session.ID
	links int
}

type mark struct {
	key     session.Key
	version session.Version
	len     int
	epoch   int // how often the session was replaced
}

func (n naive) clone() naive {
	n.texts = slices.Clone(n.texts)
	calls := map[int]int64{}
	maps.Copy(calls, n.calls)
	n.calls, n.line = calls, slices.Clone(n.line)
	return n
}

type pair struct {
	s        session.Session
	m        naive
	replaced int
}

func (p pair) self() mark {
	return mark{p.s.Key(), p.s.Ref().Version, p.s.Len(), p.replaced}
}

func (p pair) marks() []mark { return append([]mark{p.self()}, p.m.line...) }

// nearest is the newest value that b shares with one of the others.
func nearest(b pair, others ...pair) (mark, bool) {
	for _, m := range b.marks() {
		best, ok := mark{}, false
		for _, o := range others {
			for _, n := range o.marks() {
				if n.key == m.key && (!ok || n.version > best.version) {
					best, ok = n, true
				}
			}
		}
		if ok {
			if best.version < m.version {
				return best, true
			}
			return m, true
		}
	}
	return mark{}, false
}

func (w *world) check(p pair) {
	w.t.Helper()
	var texts []string
	for i, c := range p.s.Chunks() {
		if i != len(texts) {
			w.t.Fatalf("%s: chunk %d has index %d", p.s.Ref(), len(texts), i)
		}
		texts = append(texts, c.Text())
	}
	if !slices.Equal(texts, p.m.texts) {
		w.t.Fatalf("%s: chunks differ:\n%s", p.s.Ref(), cmp.Diff(p.m.texts, texts))
	}
	var tokens int64
	for _, v := range p.m.calls {
		tokens += v
	}
	if u := p.s.Usage(); u.Input != tokens || u.Calls != int64(len(p.m.calls)) {
		w.t.Fatalf("%s: usage %+v, want %d tokens in %d calls", p.s.Ref(), u, tokens, len(p.m.calls))
	}
	if got := p.s.Placement().Backend; got != p.m.place {
		w.t.Fatalf("%s: placed on %q, want %q", p.s.Ref(), got, p.m.place)
	}
	if p.s.Root() != p.m.root {
		w.t.Fatalf("%s: root %s, want %s", p.s.Ref(), p.s.Root(), p.m.root)
	}
	if got := len(slices.Collect(p.s.Parents())); got != p.m.links {
		w.t.Fatalf("%s: %d parents, want %d", p.s.Ref(), got, p.m.links)
	}
	for i := range min(len(texts), 40) {
		at := i * max(len(texts)/40, 1)
		if c, ok := p.s.At(at); !ok || c.Text() != texts[at] {
			w.t.Fatalf("%s: At(%d) = %q, %v; want %q", p.s.Ref(), at, c.Text(), ok, texts[at])
		}
	}
}

// TestModel compares random histories of forks and joins with slices that are
// copied at every step.
func TestModel(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { history(t, seed) })
	}
}

func history(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	w.fresh = seed%3 == 2
	var trunks []pair // the newest value of each session
	var old []pair    // every value there ever was
	chunk, call := 0, 0
	keep := func(i int, p pair) {
		if i == len(trunks) {
			trunks = append(trunks, p)
		} else {
			trunks[i] = p
		}
		w.check(p)
		old = append(old, p)
	}
	chunks := func(m *naive, n int) (events []session.Event) {
		for range n {
			chunk++
			text := fmt.Sprintf("chunk %d", chunk)
			c := session.UserText(text)
			if r.IntN(2) == 0 {
				call++
				tokens := int64(1 + r.IntN(1000))
				c = session.AssistantText(text).Of(session.Origin{Usage: session.Usage{Calls: 1, Input: tokens}})
				m.calls[call] = tokens
			}
			m.texts = append(m.texts, text)
			events = append(events, session.ChunkEvent(c))
		}
		return events
	}
	name := func() session.Key { return key(fmt.Sprintf("s%d", len(trunks))) }
	some := func() int { // sizes around the pages of a table
		return []int{0, 1, 2, 3, 31, 32, 33, 70}[r.IntN(8)]
	}
	k := name()
	m := naive{calls: map[int]int64{}, root: k.ID}
	keep(0, pair{s: w.open(k, session.Opening{Kind: session.OpenLeaf}, chunks(&m, some())...), m: m})
	for range 40 {
		i := r.IntN(len(trunks))
		p := trunks[i]
		m := p.m.clone()
		switch r.IntN(8) {
		case 0, 1, 2:
			if events := chunks(&m, some()); len(events) > 0 {
				keep(i, pair{w.commit(p.s.Key(), events...), m, p.replaced})
			}
		case 3:
			m.place = fmt.Sprintf("b%d", r.IntN(3))
			keep(i, pair{w.commit(p.s.Key(), session.PlacedEvent(session.Placement{Backend: m.place})), m, p.replaced})
		case 4, 5: // a fork of any value there ever was
			p := old[r.IntN(len(old))]
			m := p.m.clone()
			k, kind := name(), session.OpenFork
			m.line, m.links = p.marks(), 1
			if r.IntN(5) == 0 {
				kind, m.line, m.root = session.OpenDetach, nil, k.ID
			}
			keep(len(trunks), pair{s: w.fork(k, kind, p.s), m: m})
		case 6: // a join of related sessions
			var branches []pair
			for _, b := range r.Perm(len(trunks))[:min(3, len(trunks))] {
				if b != i {
					branches = append(branches, trunks[b])
				}
			}
			w.join(r, i, p, branches, keep)
		case 7: // a new session of two, or one that replaces another
			j := r.IntN(len(trunks))
			b := trunks[j]
			if i == j {
				continue
			}
			parts := []pair{p, b}
			trunk, policy, to, placed := session.Session{}, session.JoinConcatenate, len(trunks), 0
			next := naive{calls: map[int]int64{}, root: name().ID, place: p.m.place, links: 2}
			replaced := 0
			if r.IntN(3) == 0 {
				parts, trunk, policy, to, placed = parts[1:], p.s, session.JoinReplace, i, -1
				next = p.m.clone()
				next.texts, next.links, replaced = nil, p.m.links+1, p.replaced+1
			}
			var branches []session.Session
			for _, part := range parts {
				next.texts = append(next.texts, part.m.texts...)
				maps.Copy(next.calls, part.m.calls)
				branches = append(branches, part.s)
			}
			join := must.Get(session.JoinOf(trunk, policy, "", placed, branches...))(t)
			if trunk.Unborn() {
				keep(to, pair{s: w.open(name(), session.Opening{Kind: session.OpenMerge}, session.JoinedEvent(join)), m: next})
			} else {
				keep(to, pair{w.commit(trunk.Key(), session.JoinedEvent(join)), next, replaced})
			}
		}
	}
	for _, p := range old {
		w.check(p) // later changes did not affect it
	}
	for i, p := range trunks {
		w.same(p.s, w.fold(p.s.Key(), 0))
		if i%4 == int(seed%4) {
			w.paged(p.s)
		}
	}
}

// paged demands that a snapshot of s shows the same, and that older values
// can be rebuilt from it.
func (w *world) paged(s session.Session) {
	w.t.Helper()
	kept, state, pages, err := s.With(session.UserText("pending")).MarshalPaged()
	must.Do(w.t, err)
	w.same(s, kept)
	for _, p := range pages {
		must.Do(w.t, p.Save(func(digest string, part []byte) error { return w.log.SavePage(w.t.Context(), "t", digest, part) }))
	}
	loaded, err := session.UnmarshalPaged(state, func(r session.PageRef) (*session.Page, error) {
		return session.LoadPage(r, func(digest string) ([]byte, error) { return w.log.LoadPage(w.t.Context(), "t", digest) })
	})
	if err != nil {
		w.t.Fatalf("UnmarshalPaged of %s: %v", s.Ref(), err)
	}
	w.same(s, loaded)
	if _, again, _, err := loaded.MarshalPaged(); err != nil || again != state {
		w.t.Fatalf("a snapshot of what was loaded differs: %v\n%s\n%s", err, state, again)
	}
	rebuilt := 0
	for l, old := range w.known {
		if rebuilt == 4 || l.Key != s.Key() || old.Mark().Table() != s.Mark().Table() {
			continue
		}
		back := must.Get(loaded.Rebuild(old.Mark()))(w.t)
		w.same(old, back)
		rebuilt++
	}
}

func (w *world) join(r *rand.Rand, i int, p pair, branches []pair, keep func(int, pair)) {
	w.t.Helper()
	m := p.m.clone()
	place := r.IntN(len(branches)+1) - 1
	var values []session.Session
	var why string
	for n, b := range branches {
		values = append(values, b.s)
		common, ok := nearest(b, p)
		if !ok {
			why = "unrelated"
			break
		}
		from := common.len
		if near, ok := nearest(b, branches[:n]...); ok {
			from = max(from, min(near.len, len(b.m.texts)))
		}
		if common.len > 0 && (common.len > len(p.m.texts) || common.len > len(b.m.texts) ||
			p.m.texts[common.len-1] != b.m.texts[common.len-1]) {
			from = 0 // one of them was replaced since
		}
		m.texts = append(m.texts, b.m.texts[from:]...)
		maps.Copy(m.calls, b.m.calls)
		m.links++
		if n == place && b.m.place != "" {
			m.place = b.m.place
		}
	}
	join, err := session.JoinOf(p.s, session.JoinSinceAncestor, "", place, values...)
	switch {
	case why != "" && err == nil:
		w.t.Fatalf("join of %s with %d branches of which one is %s did not fail", p.s.Ref(), len(branches), why)
	case why == "" && err != nil:
		w.t.Fatal(err)
	case why != "" || len(branches) == 0:
		return
	}
	keep(i, pair{w.commit(p.s.Key(), session.JoinedEvent(join)), m, p.replaced})
}

// same checks that two values are the same in every respect.
func (w *world) same(want, got session.Session) {
	w.t.Helper()
	if diff := cmp.Diff(describe(want), describe(got)); diff != "" {
		w.t.Fatalf("%s differs (-want +got):\n%s", want.Ref(), diff)
	}
	for _, other := range w.newest {
		an, aref, aok := session.CommonLen(other, want)
		bn, bref, bok := session.CommonLen(other, got)
		if an != bn || aref != bref || aok != bok {
			w.t.Fatalf("CommonLen of %s and %s: %d %s %v, want %d %s %v", other.Ref(), got.Ref(), bn, bref, bok, an, aref, aok)
		}
	}
}

// shown is the complete visible state of a session.
type shown struct {
	Ref       session.Ref
	Root      session.ID
	Link      session.Link
	Placement session.Placement
	Usage     session.Usage
	Opening   session.Opening
	Closing   session.Closing
	Parents   []session.Link
	Line      []session.Ref
	Chunks    []session.Event
	Refs      []session.Ref
	Since     int
}

func describe(s session.Session) shown {
	d := shown{
		Ref: s.Ref(), Root: s.Root(), Placement: s.Placement(), Usage: s.Usage(), Opening: s.Opening(), Closing: s.Closing(),
		Parents: slices.Collect(s.Parents()), Line: slices.Collect(s.Line()),
	}
	d.Link, _ = s.Link()
	for _, c := range s.Chunks() {
		d.Chunks = append(d.Chunks, session.ChunkEvent(c))
		d.Refs = append(d.Refs, c.Ref())
	}
	for range s.SinceFork() {
		d.Since++
	}
	return d
}
