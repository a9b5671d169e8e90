package session

import (
	"encoding/json"
	"fmt"

	"github.com/rathcluster/rath/internal/core/canonical"
)

// Chunks are stored in pages of at most this many, and of fewer if they are long.
const (
	pageChunks = 128
	pageBytes  = 64 << 10
)

// paged names the pages of the first n chunks of a table, and the page of the session's
// ancestors. Values that grow from one another share it, so that a fork's first
// snapshot names its ancestors' pages.
type paged struct {
	n     int
	pages []*Page
	line  *Page
}

type wireValue struct {
	At        position  `json:"at"`
	Closing   Closing   `json:"closing,omitzero"`
	Joined    *PageRef  `json:"joined,omitempty"`
	Key       Key       `json:"key"`
	Line      *PageRef  `json:"line,omitempty"`
	Opening   Opening   `json:"opening,omitzero"`
	Own       Usage     `json:"own,omitzero"`
	Pages     []PageRef `json:"pages,omitempty"`
	Past      wirePast  `json:"past,omitzero"`
	Placement Placement `json:"placement,omitzero"`
	Replaced  int       `json:"replaced,omitempty"`
	Root      ID        `json:"root"`
	Tail      []byte    `json:"tail,omitempty"` // chunks that no page holds yet
	TailLen   int       `json:"tail_len,omitempty"`
	Usage     Usage     `json:"usage,omitzero"`
	Version   Version   `json:"version"`
}

// position is the commit that made a value.
type position struct {
	Hash  Hash   `json:"hash"`
	Seq   uint64 `json:"seq"`
	Token uint64 `json:"token"`
}

// wirePast holds a small number of ancestors and joins; larger numbers have a page of
// their own.
type wirePast struct {
	Joined []wireJoint `json:"joined,omitempty"` // oldest first
	Line   []wireLine  `json:"line,omitempty"`   // nearest first
}

type wireJoint struct {
	Links  []Link      `json:"links,omitempty"`
	Shares []wireShare `json:"shares,omitempty"`
}

type wireShare struct {
	Key     Key     `json:"key"`
	Own     Usage   `json:"own"`
	Version Version `json:"version"`
}

type wireLine struct {
	From   Ref         `json:"from"`
	Len    int         `json:"len"`
	Own    Usage       `json:"own,omitzero"`
	Shares []wireShare `json:"shares,omitempty"` // of all joins before the fork
}

// maxPast is the maximum number of ancestors or joins in a snapshot without a page.
const maxPast = 32

// MarshalPaged returns s without its pending edits in its snapshot form: a text that
// names pages, and these pages, which must be saved before the text. Its cost is
// proportional to the additions since an earlier MarshalPaged of the same session or of
// an ancestor. The returned session is s with its pages remembered: the next value
// should grow from it.
func (s Session) MarshalPaged() (kept Session, state string, pages []*Page, err error) {
	v := *s.Committed().val()
	v.paginate()
	w := wireValue{
		At: v.at, Closing: s.Closing(), Key: v.key, Opening: s.Opening(), Own: v.own, Placement: s.Placement(),
		Replaced: v.replaced, Root: v.root, Usage: v.usage, Version: v.version,
	}
	var tail []Chunk
	v.table.each(v.paged.n, v.table.n, func(_ int, c Chunk) bool { tail = append(tail, c); return true })
	if w.TailLen = len(tail); len(tail) > 0 {
		w.Tail = []byte(encodeChunks(tail))
	}
	for _, p := range v.paged.pages {
		w.Pages = append(w.Pages, p.Ref())
	}
	pages = append(pages, v.paged.pages...)
	w.Past.Joined = v.joined.wire()
	if len(w.Past.Joined) > maxPast {
		p, err := jsonPage(len(w.Past.Joined), w.Past.Joined)
		if err != nil {
			return s, "", nil, err
		}
		pages, w.Joined, w.Past.Joined = append(pages, p), new(p.Ref()), nil
	}
	if v.paged.line == nil {
		if w.Past.Line = v.line.wire(); len(w.Past.Line) > maxPast {
			p, err := jsonPage(len(w.Past.Line), w.Past.Line)
			if err != nil {
				return s, "", nil, err
			}
			v.paged.line, w.Past.Line = p, nil
		}
	}
	if p := v.paged.line; p != nil {
		pages, w.Line = append(pages, p), new(p.Ref())
	}
	state, err = canonical.Encode(w)
	return Session{&v}, state, pages, err
}

func jsonPage(items int, v any) (*Page, error) {
	data, err := canonical.Encode(v)
	return NewPage(items, data), err
}

// paginate makes pages of chunks until only a short tail is left.
func (v *value) paginate() {
	own := paged{}
	if v.paged != nil {
		own = *v.paged
	}
	own.trim(v.table.n)
	own.pages = own.pages[:len(own.pages):len(own.pages)] // others may share the array
	var page []Chunk
	size := 0
	v.table.each(own.n, v.table.n, func(_ int, c Chunk) bool {
		page = append(page, c)
		r := c.row()
		size += len(r.text) + len(r.opaque) + 64
		for _, call := range r.calls {
			size += len(call.Args)
		}
		if len(page) == pageChunks || size >= pageBytes {
			own.pages = append(own.pages, chunkPage(page))
			own.n += len(page)
			page, size = nil, 0
		}
		return true
	})
	v.paged = &own
}

// under returns the pages for a session that takes over the chunks, but not the
// ancestors, of s. The ancestors are those of own.
func (s *paged) under(own *paged) *paged {
	if s == nil {
		return nil
	}
	u := &paged{n: s.n, pages: s.pages}
	if own != nil {
		u.line = own.line
	}
	return u
}

// trim drops the pages that reach beyond n chunks.
func (s *paged) trim(n int) {
	for s.n > n {
		last := len(s.pages) - 1
		s.n -= s.pages[last].ref.Items
		s.pages = s.pages[:last:last]
	}
}

func (j *joint) wire() (all []wireJoint) {
	n := 0
	for i := j; i != nil; i = i.prev {
		n++
	}
	all = make([]wireJoint, n)
	for ; j != nil; j = j.prev {
		n--
		all[n] = wireJoint{Links: j.links, Shares: wireShares(j.shares)}
	}
	return all
}

func wireShares(shares []share) (all []wireShare) {
	for _, s := range shares {
		all = append(all, wireShare{s.key, s.own, s.version})
	}
	return all
}

func fromShares(shares []wireShare) (all []share) {
	for _, s := range shares {
		all = append(all, share{s.Key, s.Version, s.Own})
	}
	return all
}

func (l *line) wire() (all []wireLine) {
	for ; l != nil; l = l.up {
		w := wireLine{From: l.from, Len: l.len, Own: l.own}
		l.joined.each(func(s share) { w.Shares = append(w.Shares, wireShare{s.key, s.own, s.version}) })
		all = append(all, w)
	}
	return all
}

// UnmarshalPaged is the inverse of MarshalPaged. load returns the page of a reference.
// It fails on any input that MarshalPaged did not write.
func UnmarshalPaged(state string, load func(PageRef) (*Page, error)) (Session, error) {
	var w wireValue
	if err := json.Unmarshal([]byte(state), &w); err != nil {
		return Session{}, fmt.Errorf("session: snapshot: %w", err)
	}
	v := value{
		key: w.Key, root: w.Root, version: w.Version, placement: placed(w.Placement), usage: w.Usage, own: w.Own,
		replaced: w.Replaced, at: w.At, paged: &paged{},
	}
	if w.Opening.Kind != "" {
		v.opened = &w.Opening
	}
	if w.Closing.State != "" {
		v.closed = &w.Closing
	}
	for _, ref := range w.Pages {
		p, err := load(ref)
		if err != nil {
			return Session{}, err
		}
		chunks, err := p.load()
		if err != nil {
			return Session{}, err
		}
		v.table = v.table.extend(chunks)
		v.paged.pages = append(v.paged.pages, p)
	}
	v.paged.n = v.table.n
	tail, err := decodeChunks(string(w.Tail), w.TailLen)
	if err != nil {
		return Session{}, err
	}
	v.table = v.table.extend(tail)
	if err := fromPage(w.Joined, load, &w.Past.Joined); err != nil {
		return Session{}, err
	}
	for _, j := range w.Past.Joined {
		v.joined = &joint{links: j.Links, shares: fromShares(j.Shares), prev: v.joined}
	}
	if w.Line != nil {
		if v.paged.line, err = load(*w.Line); err != nil {
			return Session{}, err
		}
	}
	if err := fromPage(w.Line, load, &w.Past.Line); err != nil {
		return Session{}, err
	}
	for i := len(w.Past.Line) - 1; i >= 0; i-- {
		l := w.Past.Line[i]
		v.line = &line{from: l.From, len: l.Len, own: l.Own, up: v.line}
		if len(l.Shares) > 0 {
			v.line.joined = &joint{shares: fromShares(l.Shares)}
		}
	}
	return Session{&v}, nil
}

func fromPage(r *PageRef, load func(PageRef) (*Page, error), into any) error {
	if r == nil {
		return nil
	}
	p, err := load(*r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(p.Data()), into); err != nil {
		return fmt.Errorf("session: snapshot: %w", err)
	}
	return nil
}

// Mark distinguishes an older value of a session from a newer one that grew from it.
// Snapshots use marks to store the values of recorded steps.
type Mark struct {
	at        position
	closed    bool
	joined    int
	len       int
	own       Usage
	placement Placement
	replaced  int
	usage     Usage
	version   Version
}

type wireMark struct {
	At        position  `json:"at"`
	Closed    bool      `json:"closed,omitempty"`
	Joined    int       `json:"joined,omitempty"`
	Len       int       `json:"len,omitempty"`
	Own       Usage     `json:"own,omitzero"`
	Placement Placement `json:"placement,omitzero"`
	Replaced  int       `json:"replaced,omitempty"`
	Usage     Usage     `json:"usage,omitzero"`
	Version   Version   `json:"version"`
}

// MarshalJSON writes the mark for a snapshot.
func (m Mark) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireMark{m.at, m.closed, m.joined, m.len, m.own, m.placement, m.replaced, m.usage, m.version})
}

// UnmarshalJSON reads the output of MarshalJSON.
func (m *Mark) UnmarshalJSON(b []byte) error {
	var w wireMark
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*m = Mark{w.At, w.Closed, w.Joined, w.Len, w.Own, w.Placement, w.Replaced, w.Usage, w.Version}
	return nil
}

// Table identifies the table of a value within a session: a join that replaces the
// chunks begins a new table. A mark can be rebuilt only from a value with the mark's
// table.
func (m Mark) Table() int { return m.replaced }

// Mark returns the mark of s without its pending edits.
func (s Session) Mark() Mark {
	v := s.Committed().val()
	joined := 0
	for j := v.joined; j != nil; j = j.prev {
		joined++
	}
	return Mark{v.at, v.closed != nil, joined, v.table.n, v.own, s.Placement(), v.replaced, v.usage, v.version}
}

// placed is the form of a placement in a value.
func placed(p Placement) *Placement {
	if p == (Placement{}) {
		return nil
	}
	own := p // a copy: else p would be allocated even if it is zero
	return &own
}

// Rebuild returns the value that m marks. s must be a later value of the same session
// and table.
func (s Session) Rebuild(m Mark) (Session, error) {
	v := *s.Committed().val()
	joined := s.Mark().joined
	if m.replaced != v.replaced || m.len < 0 || m.len > v.table.n || m.joined > joined || m.version > v.version {
		return s, fmt.Errorf("session: version %d with %d chunks is not a former value of %s", m.version, m.len, s.Ref())
	}
	v.version, v.table, v.placement, v.usage, v.own, v.at = m.version, v.table.prefix(m.len), placed(m.placement), m.usage, m.own, m.at
	if !m.closed {
		v.closed = nil
	}
	for ; joined > m.joined; joined-- {
		v.joined = v.joined.prev
	}
	if v.paged != nil && v.paged.n > m.len {
		own := *v.paged
		own.trim(m.len)
		v.paged = &own
	}
	return Session{&v}, nil
}
