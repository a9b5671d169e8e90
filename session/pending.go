package session

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
)

// edits are the pending events of a value: those of the value from which it was made,
// then its own. A value that grows row by row therefore costs the same for each row.
type edits struct {
	before *edits
	events []Event
}

// each yields all events, oldest first.
func (p *edits) each(yield func(Event) bool) {
	var parts []*edits
	for ; p != nil; p = p.before {
		parts = append(parts, p)
	}
	for i := len(parts) - 1; i >= 0; i-- {
		for _, e := range parts[i].events {
			if !yield(e) {
				return
			}
		}
	}
}

// Edited returns s with more pending edits: events of [ChunkEvent] and [PlacedEvent],
// and those that another value's [Session.Pending] yields. It ignores other events.
func (s Session) Edited(events ...Event) Session {
	old := s.val()
	v := *old
	own := make([]Event, 0, len(events))
	chunks := make([]Chunk, 0, len(events))
	for _, e := range events {
		switch e.Kind {
		case KindChunk:
			c, err := v.add(e)
			if err != nil {
				continue
			}
			chunks = append(chunks, c)
		case KindPlaced:
			p, err := DecodePlacement(e)
			if err != nil {
				continue
			}
			v.placement = &p
		default:
			continue
		}
		own = append(own, e)
	}
	if len(own) == 0 {
		return s
	}
	v.table = v.table.extend(chunks)
	v.pending = &edits{before: old.pending, events: own}
	if v.committed == nil {
		v.committed = old
	}
	return Session{&v}
}

// Pending yields the events of edits that are not committed yet.
func (s Session) Pending() iter.Seq[Event] { return s.val().pending.each }

// PendingDigest identifies the pending edits; it is empty when there are none.
func (s Session) PendingDigest() string {
	if s.val().pending == nil {
		return ""
	}
	h := sha256.New()
	var b []byte
	s.val().pending.each(func(e Event) bool {
		b = append(append(append(append(b[:0], e.Kind...), 0), e.Data...), 0)
		h.Write(b)
		return true
	})
	return hex.EncodeToString(h.Sum(nil)[:16])
}
