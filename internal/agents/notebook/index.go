package notebook

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
)

// maxQueryTerms bounds the work of one query, whose text may be a whole document.
const maxQueryTerms = 128

// index is an inverted index over notes. The cost of adding and removing is proportional to
// the note's length, the cost of a query to the length of its terms' postings. It is not
// safe for concurrent use, except that searches may run concurrently.
type index struct {
	slots    []*entry // by slot number; nil is free
	free     []uint32
	postings map[string]*[]posting // sorted by slot
	total    int                   // terms in all entries
	vectors  int                   // bytes of all vectors
	models   map[string]int        // number of vectors of each model

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
	return &index{postings: make(map[string]*[]posting), models: make(map[string]int)}
}

func (ix *index) len() int { return len(ix.slots) - len(ix.free) }

// lists caches the postings of a word's terms while many notes are added. It is valid until
// a note is removed.
type lists map[string][]*[]posting

// add indexes a note. words may be nil, which disables the cache.
func (ix *index) add(n Note, words lists) *entry {
	e := &entry{note: n}
	if k := len(ix.free); k > 0 {
		e.slot = ix.free[k-1]
		ix.free = ix.free[:k-1]
		ix.slots[e.slot] = e
	} else {
		e.slot = uint32(len(ix.slots))
		ix.slots = append(ix.slots, e)
	}
	count := func(list *[]posting) {
		e.length++
		i := place(*list, e.slot)
		if i == len(*list) || (*list)[i].slot != e.slot {
			*list = slices.Insert(*list, i, posting{slot: e.slot})
		}
		(*list)[i].count++
	}
	word := func(run string, at int, spaceless bool) {
		if spaceless {
			scanPairs(run, at, false, func(term string, _, _ int) { count(ix.list(term)) })
			return
		}
		of, ok := words[run]
		if !ok {
			scanWord(run, at, func(term string, _, _ int) { of = append(of, ix.list(term)) })
			if words != nil && len(run) <= maxTerm {
				words[run] = of
			}
		}
		for _, list := range of {
			count(list)
		}
	}
	split(n.Text, word)
	split(n.Context, word)
	ix.total += e.length
	if v := n.Vector; v != (Vector{}) {
		ix.vectors += len(v.Numbers)
		ix.models[v.Model]++
	}
	return e
}

func (ix *index) remove(e *entry) {
	ix.total -= e.length
	if v := e.note.Vector; v != (Vector{}) {
		ix.vectors -= len(v.Numbers)
		if ix.models[v.Model]--; ix.models[v.Model] == 0 {
			delete(ix.models, v.Model)
		}
	}
	drop := func(term string, _, _ int) {
		list := ix.postings[term]
		if list == nil {
			return // it stood there more than once
		}
		i := place(*list, e.slot)
		if i == len(*list) || (*list)[i].slot != e.slot {
			return
		}
		if *list = slices.Delete(*list, i, i+1); len(*list) == 0 {
			delete(ix.postings, term)
		}
	}
	scan(e.note.Text, false, drop)
	scan(e.note.Context, false, drop)
	ix.slots[e.slot] = nil
	ix.free = append(ix.free, e.slot)
}

// place is where slot is, or belongs, in a posting list.
func place(list []posting, slot uint32) int {
	switch n := len(list); {
	case n == 0, list[n-1].slot < slot:
		return n
	case list[n-1].slot == slot:
		return n - 1
	}
	return sort.Search(len(list), func(i int) bool { return list[i].slot >= slot })
}

// list is where the postings of a term go.
func (ix *index) list(term string) *[]posting {
	list := ix.postings[term]
	if list == nil {
		list = new([]posting)
		ix.postings[strings.Clone(term)] = list
	}
	return list
}

// of returns the postings of a term.
func (ix *index) of(term string) []posting {
	if list := ix.postings[term]; list != nil {
		return *list
	}
	return nil
}

// term is one distinct term of a query.
type term struct {
	text  string
	count int
	idf   float64
}

// terms analyses a query. Its terms keep their order, because the order of floating-point
// additions determines the last digit.
func (ix *index) terms(query string) []term {
	var terms []term
	at := make(map[string]int)
	scan(query, true, func(text string, _, _ int) {
		if i, ok := at[text]; ok {
			terms[i].count++
		} else if len(terms) < maxQueryTerms {
			at[text] = len(terms)
			terms = append(terms, term{text: text, count: 1, idf: idf(ix.len(), len(ix.of(text)))})
		}
	})
	return ix.withForms(terms)
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
		for _, p := range ix.of(t.text) {
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
		best = insert(best, m, limit)
	}
	ix.scratch.Put(scores)
	return best
}

// better orders matches, the best first.
func better(a, b match) int {
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.note.URI, b.note.URI))
}

// insert inserts a match into the sorted limit best matches.
func insert(best []match, m match, limit int) []match {
	i, _ := slices.BinarySearchFunc(best, m, better)
	best = slices.Insert(best, i, m)
	return best[:min(len(best), limit)]
}
