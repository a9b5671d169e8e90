package events_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rathcluster/rath/internal/evidence/events"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
)

func at(partition uint32, seq uint64, k int) *messages.Record {
	return &messages.Record{Session: "s1", Partition: partition, Seq: seq, K: k}
}

var scope = events.Scope{Tenant: "acme", Root: "s0"}

// TestPosition: a position counts records as read in any order of their partitions, and
// the events of a record that were sent before a stream broke off.
func TestPosition(t *testing.T) {
	p := &events.Position{Cursor: &lineage.Cursor{}}
	for _, r := range []*messages.Record{at(0, 1, 0), at(1, 7, 0), at(0, 1, 1), at(0, 2, 0)} {
		if n := p.Pass(r); n != 0 {
			t.Errorf("%d events of a new record are counted as sent", n)
		}
		p = must.Get(events.ParseToken(p.Token(scope), scope))(t)
		if n := p.Pass(r); n != events.MaxOf {
			t.Errorf("%d events of a record that was read are counted as sent", n)
		}
	}
	next := at(1, 8, 2)
	token := p.Before(next, 1).Token(scope)
	p = must.Get(events.ParseToken(token, scope))(t)
	other := at(0, 3, 0) // a repair may have put it before the other one
	if n := p.Pass(other); n != 0 {
		t.Errorf("%d events of another record are counted as sent", n)
	}
	if p.Before(at(0, 4, 0), 1) != nil {
		t.Error("a position in two records at once")
	}
	if p = must.Get(events.ParseToken(p.Token(scope), scope))(t); p.Pass(next) != 1 || p.Pass(next) != events.MaxOf {
		t.Error("the event that was sent comes twice, or the next one is lost")
	}
	if len(token) > 64 {
		t.Errorf("a token of %d bytes: %s", len(token), token)
	}
}

// TestPositionRefused: positions that are none, of other streams, and behind the end.
func TestPositionRefused(t *testing.T) {
	p := &events.Position{Cursor: &lineage.Cursor{}}
	p.Pass(at(1, 7, 2))
	token := p.Token(scope)
	for name, c := range map[string]struct {
		text string
		err  error
	}{
		"nothing":        {"", events.ErrToken},
		"a number":       {"17", events.ErrToken},
		"cut":            {token[1:], events.ErrToken},
		"long":           {strings.Repeat("a", events.MaxToken+1), events.ErrToken},
		"another tree":   {p.Token(events.Scope{Tenant: "acme", Root: "s9"}), events.ErrForeign},
		"another tenant": {p.Token(events.Scope{Tenant: "evil", Root: "s0"}), events.ErrForeign},
		"all of a part":  {token + ".0.1.8.0.3", events.ErrToken},
		"no part":        {token + ".0.1.8.0.0", events.ErrToken},
		"zeros":          {token + ".0.1.08.0.1", events.ErrToken},
	} {
		if _, err := events.ParseToken(c.text, scope); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
	}
	end := func(seqs ...uint64) *lineage.Cursor {
		c := &lineage.Cursor{}
		for i, seq := range seqs {
			c.TakeAll(0, uint32(i), seq) //nolint:gosec // few
		}
		return c
	}
	for name, c := range map[string]struct {
		end *lineage.Cursor
		err error
	}{
		"behind the end":      {end(0, 9), nil},
		"at the end":          {end(0, 7), nil},
		"beyond the end":      {end(9, 6), events.ErrFuture},
		"of fewer partitions": {end(9), events.ErrForeign},
	} {
		if err := p.Within(c.end); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
	}
}

// FuzzParseToken: a text is a position if and only if it is the text of that position.
func FuzzParseToken(f *testing.F) {
	p := &events.Position{Cursor: &lineage.Cursor{}}
	f.Add(p.Token(scope))
	p.Pass(at(1, 7, 2))
	f.Add(p.Token(scope))
	f.Add(p.Before(at(1, 8, 0), 2).Token(scope))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := events.ParseToken(text, scope)
		if err != nil {
			return
		}
		if p.Token(scope) != text {
			t.Errorf("%q is read, and written as %q", text, p.Token(scope))
		}
		r := at(0, 1, 0)
		p.Pass(r)
		if p.Pass(r) != events.MaxOf {
			t.Errorf("%q: a record is read twice", text)
		}
	})
}
