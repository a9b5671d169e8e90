package session

import "iter"

// Session is an immutable value, one pointer wide and safe to share. The zero Session
// is empty, unborn and legal: its id is given by the run that first commits it. Two
// values are the same if their [Session.Ref] are equal; comparing with == is
// meaningless.
type Session struct{ v *value }

type value struct {
	key       Key
	root      ID
	version   Version
	table     table
	placement *Placement // nil if it was sent nowhere
	usage     Usage
	own       Usage          // the part of usage that this session's chunks made
	opened    *Opening       // nil before the first event
	line      *line          // ancestors, nearest first
	joined    *joint         // parents that were merged in, newest first
	closed    *Closing       // nil while it is open
	archived  *ArchivedError // nil unless the log is fenced
	replaced  int            // how often a join replaced the table
	paged     *paged         // pages of the table that snapshots hold
	at        position       // the commit that made this version
	pending   *edits
	committed *value // the value without its pending events; nil when there are none
}

// line is the place where a session left its parent; the parent has a line of its own.
type line struct {
	from   Ref
	len    int
	own    Usage
	joined *joint
	up     *line
}

type joint struct {
	links  []Link
	shares []share // of the links and of their sources
	prev   *joint
}

var empty value

func (s Session) val() *value {
	if s.v == nil {
		return &empty
	}
	return s.v
}

// New returns an unborn session of the given chunks.
func New(chunks ...Chunk) Session { return Session{}.With(chunks...) }

// With returns s with chunks added at its end. They are pending: the next step of the
// run, or its end, commits them.
func (s Session) With(chunks ...Chunk) Session {
	events := make([]Event, len(chunks))
	for i, c := range chunks {
		events[i] = ChunkEvent(c)
	}
	return s.Edited(events...)
}

// To returns s sent to a sandbox backend. Like a tensor's to, it determines where the
// following work happens; the first tool that needs the sandbox opens it. spec is a
// directory to copy. If spec is "", the session starts there without files.
// [Session.Placed] moves a session with its files.
func (s Session) To(backend, spec string) Session {
	return s.Placed(Placement{Backend: backend, Spec: spec})
}

// Placed returns s sent to the place p: to a backend with the image, limits, network
// and services of p, and the files of p.Head or of the directory p.Spec:
//
//	p := s.Placement() // keeps the files
//	p.Backend, p.Image, p.Limits = "docker", "debian", "memory=512m,cpus=1"
//	s = s.Placed(p)
//
// The node sets Isolation and Epoch when it opens the sandbox.
func (s Session) Placed(p Placement) Session {
	p.Epoch, p.Isolation = 0, ""
	return s.Edited(PlacedEvent(p.clean()))
}

// Ref names the newest committed version of s. For an unborn session it is zero.
func (s Session) Ref() Ref { v := s.val(); return Ref{v.key, v.version} }

// Key names the session.
func (s Session) Key() Key { return s.val().key }

// Root is the oldest ancestor: the root of the session's tree.
func (s Session) Root() ID { return s.val().root }

// Unborn reports whether s was never committed.
func (s Session) Unborn() bool { return s.val().key == Key{} }

// Link is Ref with the commit that made the version; ok is false for a value
// that has pending edits or was never committed.
func (s Session) Link() (l Link, ok bool) {
	v := s.val()
	return Link{Ref: s.Ref(), Seq: v.at.Seq, Hash: v.at.Hash, Token: v.at.Token}, v.at.Seq > 0 && v.pending == nil
}

// Committed returns s without its pending edits.
func (s Session) Committed() Session {
	if c := s.val().committed; c != nil {
		return Session{c}
	}
	return s
}

// Len returns the number of chunks, pending ones included.
func (s Session) Len() int { return s.val().table.n }

// At returns the chunk at index i, counted from zero; ok is false out of range.
func (s Session) At(i int) (c Chunk, ok bool) {
	t := s.val().table
	if i < 0 || i >= t.n {
		return Chunk{}, false
	}
	return t.at(i), true
}

// Chunks yields all chunks with their index.
func (s Session) Chunks() iter.Seq2[int, Chunk] { return s.Range(0, s.Len()) }

// Range yields the chunks of [from, to).
func (s Session) Range(from, to int) iter.Seq2[int, Chunk] {
	return func(yield func(int, Chunk) bool) { s.val().table.each(from, to, yield) }
}

// LastN yields the last n chunks.
func (s Session) LastN(n int) iter.Seq2[int, Chunk] { return s.Range(s.Len()-n, s.Len()) }

// SinceFork yields the chunks that were added after s left its parent; for a session
// without a parent, all of them.
func (s Session) SinceFork() iter.Seq2[int, Chunk] {
	from := 0
	if l := s.val().line; l != nil {
		from = l.len
	}
	return s.Range(from, s.Len())
}

// Last returns the newest chunk of a kind.
func (s Session) Last(k Kind) (Chunk, bool) {
	t := s.val().table
	for i := t.n - 1; i >= 0; i-- {
		if c := t.at(i); c.Kind() == k {
			return c, true
		}
	}
	return Chunk{}, false
}

// Text returns the text of the newest assistant chunk.
func (s Session) Text() string { c, _ := s.Last(Assistant); return c.Text() }

// Placement returns the place where the session works.
func (s Session) Placement() (p Placement) {
	if v := s.val(); v.placement != nil {
		p = *v.placement
	}
	return p
}

// Usage is the consumption of all model calls of this session and of the sessions that
// it was forked from or merged with, each counted once.
func (s Session) Usage() Usage { return s.val().usage }

// Opening returns the session's origin.
func (s Session) Opening() (o Opening) {
	if v := s.val(); v.opened != nil {
		o = *v.opened
	}
	return o
}

// Closing returns the session's end; its State is empty while the session is open.
func (s Session) Closing() (c Closing) {
	if v := s.val(); v.closed != nil {
		c = *v.closed
	}
	return c
}

// Parents yields the sources of this session: those from which it was opened, then
// those that were merged in, oldest first.
func (s Session) Parents() iter.Seq[Link] {
	return func(yield func(Link) bool) {
		v := s.val()
		for _, l := range s.Opening().Parents {
			if !yield(l) {
				return
			}
		}
		var joints []*joint
		for j := v.joined; j != nil; j = j.prev {
			joints = append(joints, j)
		}
		for i := len(joints) - 1; i >= 0; i-- {
			for _, l := range joints[i].links {
				if !yield(l) {
					return
				}
			}
		}
	}
}

// Line yields the values from which s was forked, nearest first.
func (s Session) Line() iter.Seq[Ref] {
	return func(yield func(Ref) bool) {
		for l := s.val().line; l != nil; l = l.up {
			if !yield(l.from) {
				return
			}
		}
	}
}

// CommonLen returns the number of leading chunks that a and b share because they come
// from one ancestor, and that ancestor. ok is false if they are unrelated. A pending
// chunk is no session's ancestor. Related sessions share no chunks if one of them was
// replaced after the ancestor.
func CommonLen(a, b Session) (n int, at Ref, ok bool) {
	p, ok := common(b, a)
	if !ok {
		return 0, Ref{}, false
	}
	if !a.val().table.shares(b.val().table, p.len) {
		return 0, p.Ref, true
	}
	return p.len, p.Ref, true
}

// point is a former value of a session.
type point struct {
	Ref
	len int
}

func (s Session) points(yield func(point) bool) {
	v := s.Committed().val()
	if v.key != (Key{}) && !yield(point{Ref{v.key, v.version}, v.table.n}) {
		return
	}
	for l := v.line; l != nil; l = l.up {
		if !yield(point{l.from, l.len}) {
			return
		}
	}
}

// common returns the nearest common source of b and one of the others.
func common(b Session, others ...Session) (at point, ok bool) {
	seen := map[Key]point{}
	for _, o := range others {
		for p := range o.points {
			if old, ok := seen[p.Key]; !ok || old.Version < p.Version {
				seen[p.Key] = p
			}
		}
	}
	for p := range b.points {
		if q, found := seen[p.Key]; found {
			if q.Version < p.Version {
				p = q
			}
			return p, true
		}
	}
	return point{}, false
}
