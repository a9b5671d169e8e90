package lineage

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/rathcluster/rath/messages"
)

// MaxCursor is the maximum size of the text of a cursor in bytes. A reader of 64 partitions
// needs at most 900.
const MaxCursor = 4096

// cursorVersion is the first byte of a cursor.
const cursorVersion = 1

// Cursor is the position of a reader in a stream of records: for each event stream the
// first record that the reader lacks. It identifies records by their commits, so that it
// stays valid after a repair, which moves records to other sequences of LINEAGE, and after
// the loss of LINEAGE's end. The reader's last message in LINEAGE is stored only to begin
// the next page there. The zero value is the beginning. A Cursor is not safe for concurrent
// use.
type Cursor struct {
	at   StoredAt
	next []nextRecord // in order
}

// StoredAt identifies a message of LINEAGE. A server that lost the end of LINEAGE reuses
// its sequences, with other times.
type StoredAt struct {
	Seq  uint64 // zero for none
	Time int64  // Unix nanoseconds
}

// nextRecord is the first record of an event stream that a reader lacks.
type nextRecord struct {
	generation, partition uint32
	seq, k                uint64
}

// Take reports whether the reader lacks a record, and counts it as read. The records of an
// event stream come in order.
func (c *Cursor) Take(r *messages.Record) bool {
	g, _, _ := r.Session.Locate()
	return c.pass(nextRecord{g, r.Partition, r.Seq, uint64(r.K) + 1}) //nolint:gosec // K is not negative
}

// TakeAll counts the records of an event stream up to a commit as read.
func (c *Cursor) TakeAll(generation, partition uint32, seq uint64) {
	c.pass(nextRecord{generation, partition, seq + 1, 0})
}

// pass advances the position in an event stream, and reports whether it was earlier.
func (c *Cursor) pass(to nextRecord) bool {
	i, found := c.find(to)
	switch {
	case !found:
		c.next = slices.Insert(c.next, i, to)
	case c.next[i].seq > to.seq || c.next[i].seq == to.seq && c.next[i].k >= to.k:
		return false
	default:
		c.next[i] = to
	}
	return true
}

// find returns the place of an event stream in next.
func (c *Cursor) find(of nextRecord) (i int, found bool) {
	return slices.BinarySearchFunc(c.next, of, func(a, b nextRecord) int {
		return cmp.Or(cmp.Compare(a.generation, b.generation), cmp.Compare(a.partition, b.partition))
	})
}

// Move sets the reader's last message of LINEAGE.
func (c *Cursor) Move(to StoredAt) { c.at = to }

// At returns the reader's last message of LINEAGE. A page begins with that message, because
// the reader may lack some of its records. If LINEAGE has another message at its sequence,
// or none, the reader may also lack earlier records.
func (c *Cursor) At() StoredAt { return c.at }

// Within reports whether end, a cursor behind all commits, has the event streams of c, and
// whether it has reached the position of c in each of them. End lacks the streams of former
// generations, in which nothing is appended.
func (c *Cursor) Within(end *Cursor) (known, reached bool) {
	known, reached = true, true
	newest := uint32(0)
	for _, n := range end.next {
		newest = max(newest, n.generation)
	}
	for _, n := range c.next {
		i, found := end.find(n)
		switch {
		case !found && n.generation >= newest:
			known = false
		case found && (end.next[i].seq < n.seq || end.next[i].seq == n.seq && end.next[i].k < n.k):
			reached = false
		}
	}
	return known, reached
}

// Clone returns an independent copy of c.
func (c *Cursor) Clone() *Cursor { return &Cursor{c.at, slices.Clone(c.next)} }

// String returns the cursor as a text of letters, digits, "-" and "_"; "" for the
// beginning.
func (c *Cursor) String() string {
	if c.at == (StoredAt{}) && len(c.next) == 0 {
		return ""
	}
	b := append(make([]byte, 0, 32+8*len(c.next)), cursorVersion)
	b = binary.AppendUvarint(b, c.at.Seq)
	b = binary.AppendUvarint(b, uint64(c.at.Time)) //nolint:gosec // read back the same way
	for _, n := range c.next {
		for _, v := range [...]uint64{uint64(n.generation), uint64(n.partition), n.seq, n.k} {
			b = binary.AppendUvarint(b, v)
		}
	}
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint16(b, checkOf(b)))
}

// checkOf returns a checksum that detects texts that were cut or mistyped.
func checkOf(b []byte) uint16 { return uint16(crc32.ChecksumIEEE(b)) } //nolint:gosec // the half of it

// errCursor is returned for a text that is not a cursor.
var errCursor = errors.New("lineage: not a cursor")

// ParseCursor reads the text of a cursor.
func ParseCursor(text string) (*Cursor, error) {
	c := &Cursor{}
	if text == "" {
		return c, nil
	}
	if len(text) > MaxCursor {
		return nil, fmt.Errorf("%w: it has %d bytes, more than %d", errCursor, len(text), MaxCursor)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 3 || b[0] != cursorVersion || checkOf(b[:len(b)-2]) != binary.BigEndian.Uint16(b[len(b)-2:]) {
		return nil, errCursor
	}
	var numbers []uint64
	for b = b[1 : len(b)-2]; len(b) > 0; {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errCursor
		}
		numbers, b = append(numbers, v), b[n:]
	}
	if len(numbers)%4 != 2 {
		return nil, errCursor
	}
	c.at = StoredAt{numbers[0], int64(numbers[1])} //nolint:gosec // written the same way
	for n := range slices.Chunk(numbers[2:], 4) {
		if n[0]|n[1] > 1<<32-1 || !c.pass(nextRecord{uint32(n[0]), uint32(n[1]), n[2], n[3]}) { //nolint:gosec // checked
			return nil, errCursor
		}
	}
	return c, nil
}
