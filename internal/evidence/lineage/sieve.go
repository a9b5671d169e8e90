package lineage

import (
	"iter"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/rathcluster/rath/run"
)

// Sieve is a query of columns.
type Sieve struct {
	Where    *Selector // nil matches all
	States   []run.State
	Workflow string
	Apart    bool // with the runs of Columns.Apart
	Now      time.Time
}

// Search yields the runs that a query may match, the newest first: those whose submission
// has a sequence below before and not below first, then, with At zero, the runs whose
// submission LINEAGE does not hold.
func (c *Columns) Search(s *Sieve, first, before uint64) iter.Seq[Found] {
	return func(yield func(Found) bool) {
		m := s.compile()
		from := sort.Search(c.rows, func(row int) bool { b, i := c.at(row); return b.At[i] >= first })
		to := sort.Search(c.rows, func(row int) bool { b, i := c.at(row); return b.At[i] >= before })
		for row := to - 1; row >= from; row-- {
			b, i := c.at(row)
			if m.takes(b, i) && b.State[i]&rowLost == 0 && !yield(Found{b.At[i], b.Last[i], b.ID[i]}) {
				return
			}
		}
		if c.lost == 0 {
			to = min(to, from)
		} else {
			to = c.rows
		}
		for row := to - 1; row >= 0; row-- {
			b, i := c.at(row)
			if (row < from || b.State[i]&rowLost != 0) && b.Last[i] >= first && m.takes(b, i) && !yield(Found{0, b.Last[i], b.ID[i]}) {
				return
			}
		}
	}
}

// sieve is a compiled query. Every matching row has the bits of names, and one of the
// states.
type sieve struct {
	names  [2]uint64
	states uint8 // a bit for each of runStates
	not    uint8 // flags
	rest   func(b *block, i int) verdict
}

func (m *sieve) takes(b *block, i int) bool {
	state := b.State[i]
	if state&rowGone != 0 {
		return false
	}
	if state&rowUnsure != 0 {
		return true
	}
	names := &b.Names[i]
	return m.states>>(state&stateBits)&1 != 0 && names[0]&m.names[0] == m.names[0] && names[1]&m.names[1] == m.names[1] &&
		state&m.not == 0 && m.rest(b, i)&may != 0
}

// verdict is the set of possible values of a condition on a row.
type verdict uint8

const (
	may    verdict = 1 << iota // it can hold
	mayNot                     // it can fail
)

func exactly(holds bool) verdict {
	if holds {
		return may
	}
	return mayNot
}

func (s *Sieve) compile() *sieve {
	m := &sieve{states: statesOf(func(st run.State) bool { return len(s.States) == 0 || slices.Contains(s.States, st) })}
	if !s.Apart {
		m.not = rowApart
	}
	if s.Workflow != "" {
		m.names = namedBits("workflow", s.Workflow)
	}
	if s.Where == nil {
		m.rest = func(*block, int) verdict { return may }
		return m
	}
	all, ok := s.Where.root.(allOf)
	if !ok {
		all = allOf{s.Where.root}
	}
	var rest allOf
	for _, e := range all {
		c, ok := e.(condition)
		switch {
		case ok && c.field.Name == "state":
			m.states &= statesOf(func(st run.State) bool {
				return c.not != slices.ContainsFunc(c.values, func(v string) bool { return fits(v, string(st)) })
			})
		case ok && !c.not && len(c.values) == 1 && c.named(c.values[0]):
			bits := namedBits(c.field.Name, c.values[0])
			m.names[0] |= bits[0]
			m.names[1] |= bits[1]
		default:
			rest = append(rest, e)
		}
	}
	m.rest = compile(rest, s.Now)
	return m
}

func statesOf(has func(run.State) bool) (bits uint8) {
	for i, st := range runStates {
		if has(st) {
			bits |= 1 << i
		}
	}
	return bits
}

// named reports whether the Bloom filter of a run has the values of the field, and the value
// is neither empty nor a pattern.
func (e condition) named(value string) bool {
	return value != "" && !strings.Contains(value, "*") &&
		(strings.HasPrefix(e.field.Name, tagField) || slices.Contains([]string{"workflow", "by", "code", "parent"}, e.field.Name))
}

// Narrows reports whether a selector has a condition that Columns can test, besides the
// condition on branches.
func (s *Selector) Narrows() (narrows bool) {
	if s != nil {
		s.root.each(func(c condition) {
			narrows = narrows || c.field.Name == "state" || c.field.Name == "older" || slices.ContainsFunc(c.values, c.named)
		})
	}
	return narrows
}

// compile returns the test of an expression.
func compile(e expr, now time.Time) func(b *block, i int) verdict {
	list := func(all []expr, enough, absent verdict) func(b *block, i int) verdict {
		tests := make([]func(b *block, i int) verdict, len(all))
		for n, x := range all {
			tests[n] = compile(x, now)
		}
		return func(b *block, i int) verdict {
			one, every := verdict(0), absent
			for _, t := range tests {
				v := t(b, i)
				one |= v & enough
				every &= v
			}
			return one | every
		}
	}
	switch e := e.(type) {
	case allOf: // it holds if all can, and fails if one can
		return list(e, mayNot, may)
	case anyOf:
		return list(e, may, mayNot)
	case notExp:
		of := compile(e.of, now)
		return func(b *block, i int) verdict { return of(b, i).swap() }
	case condition:
		values := make([]func(b *block, i int) verdict, len(e.values))
		for n, v := range e.values {
			values[n] = e.outline(v, now)
		}
		return func(b *block, i int) verdict {
			one, every := verdict(0), mayNot
			for _, t := range values {
				v := t(b, i)
				one |= v & may
				every &= v
			}
			if e.not {
				return (one | every).swap()
			}
			return one | every
		}
	}
	return func(*block, int) verdict { return may | mayNot }
}

func (v verdict) swap() verdict { return v&may<<1 | v&mayNot>>1 }

// outline returns the test of one value of a condition.
func (e condition) outline(value string, now time.Time) func(b *block, i int) verdict {
	switch {
	case e.field.Name == "state":
		states := statesOf(func(st run.State) bool { return fits(value, string(st)) })
		return func(b *block, i int) verdict { return exactly(states>>(b.State[i]&stateBits)&1 != 0) }
	case e.field.Name == "branch":
		return func(b *block, i int) verdict { return exactly((b.State[i]&rowBranch != 0) == (value == "yes")) }
	case e.field.Name == "older":
		d, err := ParseAge(value)
		if err != nil {
			return func(*block, int) verdict { return mayNot }
		}
		limit := now.Add(-d)
		return func(b *block, i int) verdict {
			switch at := time.Unix(int64(b.Submitted[i]), 0); {
			case !at.Before(limit):
				return mayNot
			case at.Add(time.Second).Before(limit):
				return may
			}
			return may | mayNot
		}
	case e.named(value):
		bits := namedBits(e.field.Name, value)
		return func(b *block, i int) verdict {
			if b.Names[i][0]&bits[0] != bits[0] || b.Names[i][1]&bits[1] != bits[1] {
				return mayNot
			}
			return may | mayNot
		}
	}
	return func(*block, int) verdict { return may | mayNot }
}
