package session

import (
	"fmt"
	"strings"
)

// Open returns the value of a session before its first event.
func Open(k Key, root ID) Session { return Session{&value{key: k, root: root}} }

// MadeBy returns s linked to a commit, which is named by its number, its hash and the
// backend's token as in a [Link]. Writers call it once the commit is acknowledged.
func (s Session) MadeBy(seq uint64, hash Hash, token uint64) Session {
	v := *s.val()
	v.at = position{hash, seq, token}
	return Session{&v}
}

// Apply folds one event into s. It ignores events of other namespaces. resolve returns
// the values that forks and joins refer to; it may be nil if there are none. Apply
// fails, and leaves s unchanged, on an event of its own namespace that this release
// does not support (ErrTooOld), that does not decode, or whose references resolve does
// not find.
func Apply(s Session, e Event, resolve func(Link) (Session, error)) (Session, error) {
	if !strings.HasPrefix(e.Kind, "session.") {
		return s, nil
	}
	v := *s.val()
	switch e.Kind {
	case KindChunk:
		c, err := v.add(e)
		if err != nil {
			return s, err
		}
		v.version++
		c.c.ref = Ref{v.key, v.version}
		v.table = v.table.append(c)
	case KindPlaced:
		p, err := DecodePlacement(e)
		if err != nil {
			return s, err
		}
		v.version++
		v.placement = &p
	case KindJoined:
		j, err := DecodeJoin(e)
		if err != nil {
			return s, err
		}
		if err := v.join(j, resolve); err != nil {
			return s, err
		}
	case KindOpened:
		o, err := DecodeOpening(e)
		if err != nil {
			return s, err
		}
		if err := v.open(o, resolve); err != nil {
			return s, err
		}
	case KindClosed:
		c, err := DecodeClosing(e)
		if err != nil {
			return s, err
		}
		v.closed = &c
	case KindRejected: // evidence for other readers: it must be readable and changes nothing
		var r struct {
			Branch Link   `json:"branch"`
			Reason string `json:"reason"`
			State  string `json:"state"`
		}
		if err := Decode(e, KindRejected, &r); err != nil {
			return s, err
		}
	case KindArchived:
		var a struct {
			By   string `json:"by"`
			File string `json:"file"`
		}
		if err := Decode(e, KindArchived, &a); err != nil {
			return s, err
		}
		v.archived = &ArchivedError{Key: v.key, File: a.File, Time: e.Time, Fenced: true}
	case KindRestored:
		var r struct {
			By     string `json:"by"`
			Reason string `json:"reason"`
		}
		if err := Decode(e, KindRestored, &r); err != nil {
			return s, err
		}
		v.archived = nil
	default:
		return s, fmt.Errorf("session: unknown event %s: %w", e.Kind, ErrTooOld)
	}
	return Session{&v}, nil
}

// add applies a chunk's changes to the session, and returns the chunk, which the caller
// may change until it appends it.
func (v *value) add(e Event) (Chunk, error) {
	r, err := decodeRow(e)
	if err != nil {
		return Chunk{}, err
	}
	v.usage, v.own = v.usage.Add(r.origin.Usage), v.own.Add(r.origin.Usage)
	if r.placement != nil && v.placement != nil && *r.placement == *v.placement {
		r.placement = v.placement // one for all rows
	}
	if r.placed().Backend != "" {
		v.placement = r.placement
	}
	return Chunk{r}, nil
}

func (v *value) open(o Opening, resolve func(Link) (Session, error)) error {
	switch {
	case v.opened != nil:
		return fmt.Errorf("session: %s is opened twice", v.key)
	case v.version != 0 || v.table.n != 0:
		return fmt.Errorf("session: %s is opened after its first chunk", v.key)
	}
	v.opened = &o
	switch o.Kind {
	case OpenFork, OpenImplicit, OpenDetach:
		if len(o.Parents) != 1 {
			return fmt.Errorf("session: %s of %d parents: want one", o.Kind, len(o.Parents))
		}
		p, err := resolved(resolve, o.Parents[0])
		if err != nil {
			return err
		}
		if p.Key().Tenant != v.key.Tenant {
			return fmt.Errorf("session: %s from %s: %w", v.key, p.Key(), ErrTenant)
		}
		pv := p.val()
		v.version, v.table, v.placement, v.usage = pv.version, pv.table, pv.placement, pv.usage
		v.paged = pv.paged.under(nil)
		if o.Kind == OpenDetach {
			v.joined = &joint{shares: v.past(pv)}
		} else {
			v.root = pv.root
			v.line = &line{from: p.Ref(), len: pv.table.n, own: pv.own, joined: pv.joined, up: pv.line}
		}
	case OpenLeaf, OpenMerge, OpenCompress, OpenImport, OpenCall:
	default:
		return fmt.Errorf("session: unknown opening %q: %w", o.Kind, ErrTooOld)
	}
	return nil
}

func (v *value) join(j Join, resolve func(Link) (Session, error)) error {
	links := make([]Link, 0, len(j.Parents))
	var shares []share
	t := v.table
	sealed := v.paged
	if j.Policy == JoinReplace {
		t, sealed = table{}, nil
	}
	for _, part := range j.Parents {
		p, err := resolved(resolve, part.Link)
		if err != nil {
			return err
		}
		if p.Key().Tenant != v.key.Tenant {
			return fmt.Errorf("session: join of %s into %s: %w", p.Key(), v.key, ErrTenant)
		}
		if part.From < 0 || part.To < part.From || part.To > p.Len() {
			return fmt.Errorf("session: join takes chunks %d to %d of %s, which has %d", part.From, part.To, p.Ref(), p.Len())
		}
		shares = append(shares, v.past(p.val())...)
		if part.From == t.n && part.To == p.Len() && t.shares(p.val().table, t.n) {
			t, sealed = p.val().table, p.val().paged.under(v.paged) // the branch is trunk plus its own chunks
		} else {
			chunks := make([]Chunk, 0, part.To-part.From)
			for _, c := range p.Range(part.From, part.To) {
				chunks = append(chunks, c)
			}
			t = t.extend(chunks)
		}
		links = append(links, part.Link)
	}
	if j.Policy == JoinReplace {
		v.replaced++
	}
	v.version++
	v.table, v.paged = t, sealed
	v.usage = v.usage.Add(j.Usage)
	v.joined = &joint{links: links, shares: shares, prev: v.joined}
	if j.Placement.Backend != "" {
		v.placement = &j.Placement
	}
	return nil
}

func resolved(resolve func(Link) (Session, error), l Link) (Session, error) {
	if resolve == nil {
		return Session{}, fmt.Errorf("session: resolve %s: %w", l.Ref, ErrNotFound)
	}
	s, err := resolve(l)
	if err != nil {
		return s, fmt.Errorf("session: resolve %s: %w", l.Ref, err)
	}
	return s, nil
}

// JoinOf builds the join that merges branches into trunk under a policy: their chunks
// since the ancestor that they share with trunk or with an earlier branch (JoinAdopt,
// JoinSinceAncestor), or all of them (JoinConcatenate, JoinReplace). If the contents of
// a branch or of trunk were replaced since, for example by a summary, the join takes
// all chunks of the branch. An adopted branch then replaces the contents of trunk
// (JoinReplace), as does one that shares no ancestor. Every branch must be committed.
// The placement is that of the branch at index place, or trunk's own if place is out of
// range.
func JoinOf(trunk Session, policy, reason string, place int, branches ...Session) (Join, error) {
	j := Join{Policy: policy, Reason: clean(reason)}
	seen := map[Key]bool{}
	spent := cover{}
	spent.addAll(trunk.val())
	for i, b := range branches {
		l, ok := b.Link()
		switch {
		case !ok:
			return j, fmt.Errorf("session: join of %s: it has edits that no step committed", b.Ref())
		case b.Key().Tenant != trunk.Key().Tenant && !trunk.Unborn():
			return j, fmt.Errorf("session: join of %s into %s: %w", b.Key(), trunk.Key(), ErrTenant)
		case b.Key() == trunk.Key() || seen[b.Key()]:
			return j, fmt.Errorf("session: join of %s with itself", b.Key())
		}
		seen[b.Key()] = true
		part := Part{Link: l, To: b.Len()}
		if policy != JoinConcatenate && policy != JoinReplace {
			n, _, ok := CommonLen(trunk, b)
			p, _ := common(b, trunk)
			switch whole := p.len != n; {
			case policy == JoinAdopt && (whole || !ok):
				j.Policy = JoinReplace
			case !ok:
				return j, fmt.Errorf("session: %s and %s have no ancestor in common: use concatenate", trunk.Key(), b.Key())
			case !whole:
				part.From = n
				if near, ok := common(b, branches[:i]...); ok {
					part.From = max(n, min(near.len, b.Len()))
				}
			}
		}
		j.Usage = j.Usage.Add(spent.addAll(b.val()))
		j.Parents = append(j.Parents, part)
		if i == place {
			j.Placement = b.Placement()
		}
	}
	return j, nil
}
