// Package notebook stores notes in memory and finds them by their words. Package
// memory/local builds on it, and runs without a node use it as their memory.
package notebook

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/memory"
)

// DefaultMaxNotes is the default limit of notes in a store. The index of that many notes of
// sixty words needs about 100 MB.
const DefaultMaxNotes = 100_000

// contextBytes is the length of the part of each neighbour that is indexed with a message
// of an archive.
const contextBytes = 1 << 10

// Note is one stored text.
type Note struct {
	URI     string        `json:"uri"`
	Text    string        `json:"text"`
	Context string        `json:"context,omitempty"` // found like Text, never shown
	Origin  memory.Origin `json:"origin,omitzero"`
	Vector  Vector        `json:"vector,omitzero"`
}

// Change is the atomic change of one call: first the deletes, then the puts. Its URIs are
// canonical.
type Change struct {
	Deletes []string `json:"deletes,omitempty"`
	Puts    []Note   `json:"puts,omitempty"`
}

// Options configure New. The zero Options are the defaults.
type Options struct {
	// MaxNotes is the maximum number of notes; 0 is DefaultMaxNotes.
	MaxNotes int
	// Before is called with each change before it is applied and visible. If it returns an
	// error, the change is dropped and the caller gets the error. Calls do not overlap; reads
	// continue during a call. A durable store writes its log here. If Before is nil, changes
	// apply immediately.
	Before func(Change) error
}

// InMemory is a Store and Archiver that keeps its notes in memory.
type InMemory struct {
	max    int
	before func(Change) error

	writing sync.Mutex // held over planning, Before and applying a change

	mu      sync.RWMutex // guards the fields below
	entries map[string]*entry
	ix      *index
}

var (
	_ memory.Store    = (*InMemory)(nil)
	_ memory.Archiver = (*InMemory)(nil)
)

// New returns an empty store. Nil Options are the defaults.
func New(o *Options) *InMemory {
	if o == nil {
		o = &Options{}
	}
	m := &InMemory{max: o.MaxNotes, before: o.Before, entries: make(map[string]*entry), ix: newIndex()}
	if m.max <= 0 {
		m.max = DefaultMaxNotes
	}
	if m.before == nil {
		m.before = func(Change) error { return nil }
	}
	return m
}

// Write implements Store.
func (m *InMemory) Write(ctx context.Context, uri, text string, from memory.Origin) error {
	n, err := NewNote(uri, text, from)
	if err != nil {
		return err
	}
	return m.change(ctx, func() Change { return m.put(n) })
}

// NewNote returns the note that Write stores.
func NewNote(uri, text string, from memory.Origin) (Note, error) {
	u, err := ParseURI(uri)
	if err != nil {
		return Note{}, err
	}
	n := Note{URI: u.String(), Text: strings.ToValidUTF8(text, "\ufffd"), Origin: from}
	return n, fits(u.String(), n.Text)
}

// fits returns an error for a text that is too long for a note. Clients exchange texts as
// JSON.
func fits(name, text string) error {
	if len(text) > memory.MaxText {
		return fmt.Errorf("%w: %s has %d bytes, a note holds at most %d: shorten it, or split it", memory.ErrTooLarge, name, len(text), memory.MaxText)
	}
	if size := JSONSize(text); size > memory.MaxJSON {
		return fmt.Errorf("%w: %s has %d bytes as JSON, where control characters and quotes take more, and a note at most %d: shorten it, or split it", memory.ErrTooLarge, name, size, memory.MaxJSON)
	}
	return nil
}

// put returns the change that stores notes, without those that are already stored.
func (m *InMemory) put(notes ...Note) Change {
	var c Change
	for _, n := range notes {
		if e, ok := m.entries[n.URI]; !ok || e.note != n {
			c.Puts = append(c.Puts, n)
		}
	}
	return c
}

// Archive implements Archiver.
func (m *InMemory) Archive(ctx context.Context, session, key string, messages []memory.Message, from memory.Origin) (string, error) {
	dir, err := ArchiveURI(session, key)
	if err != nil {
		return "", err
	}
	notes, err := Transcript(dir, messages, from)
	if err != nil {
		return "", err
	}
	return dir.String(), m.change(ctx, func() Change { return m.replace(dir, notes) })
}

// ArchiveURI is where an archive lies.
func ArchiveURI(session, key string) (URI, error) {
	dir, err := ParseURI(scheme + string(Session) + "/" + session + "/archives/" + hash16(key))
	if err == nil && strings.Contains(session, "/") {
		err = invalid(dir.String(), "a session id has no slash")
	}
	return dir, err
}

// replace returns the change after which the notes below dir are exactly these.
func (m *InMemory) replace(dir URI, notes []Note) Change {
	c := m.put(notes...)
	keep := make(map[string]bool, len(notes))
	for _, n := range notes {
		keep[n.URI] = true
	}
	for _, uri := range m.list(dir) {
		if !keep[uri] {
			c.Deletes = append(c.Deletes, uri)
		}
	}
	return c
}

// Transcript returns a note for each message of an archive.
func Transcript(dir URI, messages []memory.Message, from memory.Origin) ([]Note, error) {
	if len(messages) > memory.MaxMessages {
		return nil, fmt.Errorf("%w: %s has %d messages, an archive holds at most %d: archive in parts under several keys",
			memory.ErrTooLarge, dir, len(messages), memory.MaxMessages)
	}
	texts := make([]string, len(messages))
	total := 0
	for i, msg := range messages {
		text := strings.ToValidUTF8(msg.Text, "\ufffd")
		if err := fits(fmt.Sprintf("message %d for %s", i, dir), text); err != nil {
			return nil, err
		}
		if total += len(text); total > memory.MaxArchive {
			return nil, fmt.Errorf("%w: the messages for %s have more than %d bytes: archive in parts under several keys",
				memory.ErrTooLarge, dir, memory.MaxArchive)
		}
		texts[i] = strings.TrimSpace(text)
	}
	var notes []Note
	for i, text := range texts {
		if text == "" {
			continue
		}
		n := Note{URI: fmt.Sprintf("%s/%06d", dir, i), Text: strings.ToValidUTF8(messages[i].Role, "\ufffd") + ": " + text, Origin: from}
		if i > 0 {
			n.Context = excerpt.End(texts[i-1], contextBytes)
		}
		if i+1 < len(texts) {
			n.Context = strings.TrimSpace(n.Context + "\n" + excerpt.Clip(texts[i+1], contextBytes))
		}
		notes = append(notes, n)
	}
	return notes, nil
}

// Delete implements Store.
func (m *InMemory) Delete(ctx context.Context, uri string) error {
	dir, err := ParseDir(uri)
	if err != nil {
		return err
	}
	return m.change(ctx, func() Change { return Change{Deletes: m.list(dir)} })
}

// change plans a change, passes it to Before and applies it. Plans only read.
func (m *InMemory) change(ctx context.Context, plan func() Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.writing.Lock()
	defer m.writing.Unlock()
	c, err := m.planned(plan)
	if err != nil {
		return err
	}
	if len(c.Deletes) == 0 && len(c.Puts) == 0 {
		return nil
	}
	if err := m.before(c); err != nil {
		return err
	}
	m.Apply(c)
	return nil
}

// planned returns the change of a plan, or an error if it exceeds the store's limit.
func (m *InMemory) planned(plan func() Change) (Change, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := plan()
	grows := -len(c.Deletes)
	for _, n := range c.Puts {
		if _, ok := m.entries[n.URI]; !ok {
			grows++
		}
	}
	if have := len(m.entries); grows > 0 && have+grows > m.max {
		return c, fmt.Errorf("%w: %d notes and %d more, its limit is %d: forget some (rath memory forget), or keep new ones in another memory", memory.ErrFull, have, grows, m.max)
	}
	return c, nil
}

// Put returns the change that stores a note, which is empty if the note is already stored,
// or memory.ErrFull if the store is full.
func (m *InMemory) Put(n Note) (Change, error) {
	return m.planned(func() Change { return m.put(n) })
}

// Replace returns the change after which the notes below dir are exactly these. Its errors
// are those of Put.
func (m *InMemory) Replace(dir URI, notes []Note) (Change, error) {
	return m.planned(func() Change { return m.replace(dir, notes) })
}

// Matching returns the names for which fn reports true, in no particular order.
func (m *InMemory) Matching(fn func(uri string) bool) []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var uris []string
	for uri := range m.entries {
		if fn(uri) {
			uris = append(uris, uri)
		}
	}
	return uris
}

// Hold runs fn while changes wait and reads continue, so that a durable store can rewrite
// its log from Notes.
func (m *InMemory) Hold(fn func() error) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	return fn()
}

// Apply applies a change that is already durable, without limits and without calling
// Before. A store uses it to read its log.
func (m *InMemory) Apply(c Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uri := range c.Deletes {
		m.drop(uri)
	}
	var words lists
	if len(c.Puts) > 1 {
		words = lists{}
	}
	for _, n := range c.Puts {
		if m.drop(n.URI) {
			clear(words)
		}
		m.entries[n.URI] = m.ix.add(n, words)
	}
}

func (m *InMemory) drop(uri string) bool {
	e, ok := m.entries[uri]
	if ok {
		m.ix.remove(e)
		delete(m.entries, uri)
	}
	return ok
}

// Notes returns the notes of one moment, sorted by URI.
func (m *InMemory) Notes() iter.Seq[Note] {
	m.mu.RLock()
	notes := make([]*entry, 0, len(m.entries))
	for _, uri := range m.list(URI{}) {
		notes = append(notes, m.entries[uri])
	}
	m.mu.RUnlock()
	return func(yield func(Note) bool) {
		for _, e := range notes { // entries are replaced, never altered
			if !yield(e.note) {
				return
			}
		}
	}
}

// Page returns notes at and below under whose names sort after after, sorted, without their
// index data: at most limit (0 is no limit) and about room bytes of JSON, but at least one.
// more reports whether further notes follow.
func (m *InMemory) Page(under, after string, limit, room int) (page []Note, more bool, err error) {
	dir, err := ParseDir(under)
	if err != nil {
		return nil, false, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	uris := m.list(dir)
	at, found := slices.BinarySearch(uris, after)
	if found {
		at++
	}
	for _, uri := range uris[at:] {
		n := m.entries[uri].note
		n.Context = ""
		if room -= n.Size(); len(page) > 0 && (room < 0 || limit > 0 && len(page) == limit) {
			return page, true, nil
		}
		page = append(page, n)
	}
	return page, false, nil
}

// Size is an upper bound of the note's size as JSON, in bytes.
func (n *Note) Size() int { return 320 + len(n.URI) + JSONSize(n.Text) }

// JSONSize returns the size of a text as JSON, in bytes, without the quotes around it.
func JSONSize(text string) int {
	size := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\n', c == '\t', c == '\r', c == '\b', c == '\f', c == '"', c == '\\':
			size++
		case c < ' ':
			size += 5
		case c == 0xe2 && (strings.HasPrefix(text[i:], "\u2028") || strings.HasPrefix(text[i:], "\u2029")):
			size += 3
		}
	}
	return size
}

// Len returns the number of notes.
func (m *InMemory) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.entries)
}

// Read implements Store.
func (m *InMemory) Read(ctx context.Context, uri string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	u, err := ParseURI(uri)
	if err != nil {
		return "", err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	e, ok := m.entries[u.String()]
	if !ok {
		return "", fmt.Errorf("%w: %s", memory.ErrNotFound, u)
	}
	return e.note.Text, nil
}

// List implements Store.
func (m *InMemory) List(ctx context.Context, uri string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := ParseDir(uri)
	if err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.list(dir), nil
}

func (m *InMemory) list(dir URI) []string {
	var uris []string
	for uri := range m.entries {
		if below(uri, dir) {
			uris = append(uris, uri)
		}
	}
	slices.Sort(uris)
	return uris
}

// Find implements Store.
func (m *InMemory) Find(ctx context.Context, q memory.Query) ([]memory.Hit, error) {
	return m.find(ctx, q, m.ix.find)
}

func (m *InMemory) find(ctx context.Context, q memory.Query, by func(terms []term, dir URI, limit int) []match) ([]memory.Hit, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var dir URI
	if q.Under != "" {
		var err error
		if dir, err = ParseDir(q.Under); err != nil {
			return nil, err
		}
	}
	limit := min(q.Limit, memory.MaxLimit)
	if limit <= 0 {
		limit = memory.DefaultLimit
	}
	if openRath, err := scored(q); err != nil || openRath {
		if err != nil {
			return nil, err
		}
		return m.findOpenRath(ctx, q, dir, limit)
	}
	m.mu.RLock()
	terms := m.ix.terms(q.Text)
	matches := by(terms, dir, limit)
	m.mu.RUnlock()
	hits := make([]memory.Hit, len(matches))
	for i, e := range matches {
		u, err := ParseURI(e.note.URI)
		if err != nil {
			return nil, err
		}
		hits[i] = memory.Hit{URI: e.note.URI, Snippet: snippet(e.note.Text, terms), Session: u.session(), Origin: e.note.Origin, Score: e.score}
	}
	return hits, nil
}
