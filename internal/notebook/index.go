package notebook

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"sync"
)

// maxQueryTerms bounds the work of one query; a whole document may be asked.
const maxQueryTerms = 128

// index is an inverted index over notes. Adding and removing cost what the
// note is long; a query costs what its terms' postings are long. It is not
// safe for concurrent use, but several finds may run at once.
type index struct {
	slots    []*entry // by slot number; nil is free
	free     []uint32
	postings map[string][]posting // sorted by slot
	total    int                  // terms in all entries

	scratch sync.Pool // *[]float64 by slot, all zero
}

// entry is one indexed note.
type entry struct {
	note   Note
	slot   uint32
	length int // terms
}

type posting struct {
	slot, count uint32
}

func newIndex() *index {
	return &index{postings: make(map[string][]posting)}
}

func (ix *index) len() int { return len(ix.slots) - len(ix.free) }

// count returns how often each term stands in a note, and their sum.
func (n Note) count() (terms map[string]uint32, length int) {
	terms = make(map[string]uint32)
	add := func(term string, _, _ int) {
		terms[term]++
		length++
	}
	scan(n.Text, false, add)
	scan(n.Context, false, add)
	return terms, length
}

func (ix *index) add(n Note) *entry {
	terms, length := n.count()
	e := &entry{note: n, length: length}
	if k := len(ix.free); k > 0 {
		e.slot = ix.free[k-1]
		ix.free = ix.free[:k-1]
		ix.slots[e.slot] = e
	} else {
		e.slot = uint32(len(ix.slots))
		ix.slots = append(ix.slots, e)
	}
	ix.total += length
	for term, count := range terms {
		list := ix.postings[term]
		i := place(list, e.slot)
		ix.postings[term] = slices.Insert(list, i, posting{e.slot, count})
	}
	return e
}

func (ix *index) remove(e *entry) {
	terms, length := e.note.count()
	ix.total -= length
	for term := range terms {
		list := ix.postings[term]
		i := place(list, e.slot)
		if list = slices.Delete(list, i, i+1); len(list) == 0 {
			delete(ix.postings, term)
		} else {
			ix.postings[term] = list
		}
	}
	ix.slots[e.slot] = nil
	ix.free = append(ix.free, e.slot)
}

// place is where slot is, or belongs, in a posting list.
func place(list []posting, slot uint32) int {
	if n := len(list); n == 0 || list[n-1].slot < slot {
		return n
	}
	return sort.Search(len(list), func(i int) bool { return list[i].slot >= slot })
}

// term is one distinct term of a query.
type term struct {
	text  string
	count int
	idf   float64
}

// terms analyses a query. Its terms keep their order, because the order of
// adding floating point numbers decides their last digit.
func (ix *index) terms(query string) []term {
	var terms []term
	at := make(map[string]int)
	scan(query, true, func(text string, _, _ int) {
		if i, ok := at[text]; ok {
			terms[i].count++
		} else if len(terms) < maxQueryTerms {
			at[text] = len(terms)
			terms = append(terms, term{text: text, count: 1, idf: idf(ix.len(), len(ix.postings[text]))})
		}
	})
	return terms
}

// match is one scored entry.
type match struct {
	*entry
	score int64
}

// find returns the limit best entries below dir.
func (ix *index) find(terms []term, dir URI, limit int) []match {
	scores, _ := ix.scratch.Get().(*[]float64)
	if scores == nil {
		scores = new([]float64)
	}
	if len(*scores) < len(ix.slots) {
		*scores = make([]float64, len(ix.slots)+len(ix.slots)/4)
	}
	sums := *scores
	var touched []uint32
	for _, t := range terms {
		w := float64(t.count) * t.idf
		for _, p := range ix.postings[t.text] {
			e := ix.slots[p.slot]
			if sums[p.slot] == 0 {
				touched = append(touched, p.slot)
			}
			sums[p.slot] += float64(w * saturate(int(p.count), e.length, ix.total, ix.len()))
		}
	}
	best := make([]match, 0, limit+1)
	for _, slot := range touched {
		m := match{ix.slots[slot], int64(math.Round(sums[slot] * 1e6))}
		sums[slot] = 0
		if m.score <= 0 || len(best) == limit && m.score < best[limit-1].score || !below(m.note.URI, dir) {
			continue
		}
		i, _ := slices.BinarySearchFunc(best, m, func(a, b match) int {
			return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.note.URI, b.note.URI))
		})
		best = slices.Insert(best, i, m)
		best = best[:min(len(best), limit)]
	}
	ix.scratch.Put(scores)
	return best
}
