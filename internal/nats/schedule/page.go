package schedule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/rathcluster/rath/session"
)

// pages divides the sessions of the open set, so that only the changed part of a large one
// is stored again. A session's page follows from its name and the number of pages. When
// there are too few for the sessions, the next one in turn is divided in two, so that no
// commit has to move many sessions.
type pages struct {
	of    []map[*openSession]struct{}
	dirty map[int]struct{}
	len   int
}

// Sizes of pages.
const (
	minPages = 16
	pageFull = 128 // sessions on an average page, above which there are more pages
)

func (p *pages) make(n int) {
	p.of, p.dirty, p.len = make([]map[*openSession]struct{}, n), map[int]struct{}{}, 0
	for i := range p.of {
		p.of[i] = map[*openSession]struct{}{}
	}
}

// place returns the page of a session: by as many bits of its name's hash as the
// number of pages has, or by one less if there is no such page yet.
func (p *pages) place(k session.Key) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(k.Tenant))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(k.ID))
	mask := 1<<bits.Len(uint(len(p.of)-1)) - 1
	if i := int(h.Sum32()) & mask; i < len(p.of) {
		return i
	}
	return int(h.Sum32()) & (mask >> 1)
}

func (p *pages) add(o *openSession) {
	if p.len >= pageFull*len(p.of) {
		p.divide()
	}
	p.of[p.place(o.key())][o] = struct{}{}
	p.len++
	p.changed(o)
}

// divide makes one more page, for about half of the sessions of another one.
func (p *pages) divide() {
	last := len(p.of)
	half := last &^ (1 << (bits.Len(uint(last)) - 1))
	p.of = append(p.of, map[*openSession]struct{}{})
	for o := range p.of[half] {
		if p.place(o.key()) == last {
			delete(p.of[half], o)
			p.of[last][o] = struct{}{}
		}
	}
	p.dirty[half], p.dirty[last] = struct{}{}, struct{}{}
}

func (p *pages) remove(o *openSession) {
	i := p.place(o.key())
	if _, ok := p.of[i][o]; ok {
		delete(p.of[i], o)
		p.len--
	}
	p.dirty[i] = struct{}{}
}

func (p *pages) changed(o *openSession) { p.dirty[p.place(o.key())] = struct{}{} }

// Format is the format number of pages. A page with another number is not restored: in a
// fleet that is upgraded node by node, a relay may continue where one of another release
// stopped, which gathers other data.
const Format = 1

// Count returns how many pages the open set has.
func (p *pages) Count() int { return len(p.of) }

// Dirty reports whether there are pages to be stored.
func (p *pages) Dirty() bool { return len(p.dirty) > 0 }

// Take returns the pages that have changed since they were last returned, by number, in
// their stored form: nil is a page without sessions. It returns at most most pages, and
// whether there are more, so that a driver can fold commits in between. When there are no
// more, the latest version of each returned page is the open set after the last commit.
func (p *pages) Take(most int) (pages map[int][]byte, more bool, err error) {
	pages = map[int][]byte{}
	for i := range p.dirty {
		if len(pages) == most {
			return pages, true, nil
		}
		delete(p.dirty, i)
		page := p.of[i]
		if len(page) == 0 {
			pages[i] = nil
			continue
		}
		all := slices.SortedFunc(maps.Keys(page), func(a, b *openSession) int {
			return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Session, b.Session))
		})
		if pages[i], err = json.Marshal(all); err != nil {
			return nil, false, fmt.Errorf("schedule: page %d: %w", i, err)
		}
	}
	return pages, false, nil
}

// Unsaved has pages returned again that could not be stored.
func (p *pages) Unsaved(pages map[int][]byte) {
	for i := range pages {
		p.dirty[i] = struct{}{}
	}
}

// Restore returns a scheduler that continues from stored pages.
func Restore(o *Options, now time.Time, stored [][]byte) (*Scheduler, error) {
	s := New(o)
	s.Pages.make(max(len(stored), minPages))
	for i, data := range stored {
		if len(data) == 0 {
			continue
		}
		var all []*openSession
		if err := json.Unmarshal(data, &all); err != nil {
			return nil, fmt.Errorf("schedule: page %d: %w", i, err)
		}
		for _, x := range all {
			for _, d := range x.FollowUps {
				d.session = x
			}
			s.sessions[x.key()] = x
			s.Pages.add(x)
			s.count(now, nil, freshOf(x))
			s.tally(x, 1)
			s.hold(x)
		}
	}
	clear(s.Pages.dirty)
	return s, nil
}
