package lineage

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Columns is an index of a tenant's runs with at most 64 bytes for each. It finds the runs
// that a selector may match: all matching ones, and a few others. It has the exact state,
// the time of the submission and whether the run is a branch, and a Bloom filter of its
// named values: workflow, submitters, code, tags and the parent. Conditions on
// other fields, and patterns of named values, exclude no run; the caller tests the found
// runs on their records.
//
// The zero value is empty. A Columns is not safe for concurrent use.
type Columns struct {
	// Apart is a workflow whose runs are found only on request; it is set before Add.
	Apart  string
	blocks []*block
	rows   int
	lost   int      // rows without their submission
	slots  []uint32 // one plus the row, by the hash of the run; a power of two
}

const blockRows = 256

// block holds rows in the order of their submissions in the stream.
type block struct {
	ID        [blockRows]uint64    // hash of the home and the run
	At        [blockRows]uint64    // sequence of the submission in LINEAGE
	Last      [blockRows]uint64    // sequence of the last record in the home
	Names     [blockRows][2]uint64 // Bloom filter
	Submitted [blockRows]uint32    // Unix seconds
	Attempt   [blockRows]uint32
	Wake      [blockRows]uint32
	State     [blockRows]uint8 // index of runStates, and flags
}

// The flags of a row. The state of an unsure row is unknown: the records of its home came
// in another order than their commits and the run has not ended, or they do not begin with
// the submission.
const (
	stateBits = 1<<3 - 1

	rowBranch = 1 << (iota + 2)
	rowApart
	rowUnsure
	rowLost // without the submission
	rowGone
)

// Found is a run that a selector may match.
type Found struct {
	At   uint64 // sequence of its submission in LINEAGE, zero if the stream does not hold it
	Last uint64 // sequence of a message with a record of it
	id   uint64
}

// Is reports whether a record is about the run, in its home.
func (f Found) Is(r *messages.Record) bool { return runHash(r.Session, r.Run) == f.id }

func hashOf(kind, value string) uint64 {
	sum := sha256.Sum256([]byte(kind + "\x00" + value))
	return binary.LittleEndian.Uint64(sum[:])
}

func runHash(home session.ID, id run.ID) uint64 { return hashOf(string(home), string(id)) }

// namedBits returns the bits of a named value in a Bloom filter.
func namedBits(field, value string) (bits [2]uint64) {
	for h, n := hashOf(field, value), 0; n < 6; h, n = h>>7, n+1 {
		bits[h>>6&1] |= 1 << (h & 63)
	}
	return bits
}

// Len returns the number of rows.
func (c *Columns) Len() int { return c.rows }

// Add adds a record in the message of LINEAGE with a sequence. Messages come in the order of
// the stream. Ordered is false for a record of an earlier commit than a former one's of
// its event stream, as after a repair.
func (c *Columns) Add(at uint64, r *messages.Record, ordered bool) {
	if r.Run == "" || opens(r.Kind) {
		return
	}
	submits := r.Kind == messages.KindSubmitted || r.Kind == messages.KindQueued
	id := runHash(r.Session, r.Run)
	row, known := c.find(id)
	switch {
	case !known && !submits && (r.Kind != messages.KindClaimed || r.Home != ""):
		return // another session of the run, or its home is not known
	case !known:
		row = c.insert(id, at)
	case submits: // again, after a repair
		old, i := c.at(row)
		moved := c.insert(id, at)
		b, k := c.at(moved)
		b.Names[k], b.Attempt[k], b.Wake[k], b.State[k] = old.Names[i], old.Attempt[i], old.Wake[i], old.State[i]&^rowLost
		c.remove(row)
		row = moved
	}
	b, i := c.at(row)
	b.Last[i] = at
	if !known && !submits {
		b.State[i] |= rowLost | rowUnsure
		b.Submitted[i] = uint32(r.Time / 1000) //nolint:gosec // until 2106
		c.lost++
	}
	if !ordered {
		b.State[i] |= rowUnsure
	}
	if submits {
		b.Submitted[i] = uint32(r.Time / 1000) //nolint:gosec // until 2106
		c.name(b, i, "by", r.By)
		c.name(b, i, "by", r.Via)
		if r.BranchOf != nil {
			b.State[i] |= rowBranch
			c.name(b, i, "parent", string(r.BranchOf.Run))
		}
		if r.Workflow == c.Apart && c.Apart != "" {
			b.State[i] |= rowApart
		}
	}
	if submits || r.Kind == messages.KindClaimed {
		c.name(b, i, "workflow", r.Workflow)
	}
	c.name(b, i, "code", string(r.Code))
	for key, value := range r.Tags {
		c.name(b, i, tagField+key, value)
	}
	folded := Run{State: runStates[b.State[i]&stateBits], Attempt: uint64(b.Attempt[i]), Wake: uint64(b.Wake[i])}
	folded.fold(r)
	b.State[i] = b.State[i]&^stateBits | uint8(max(slices.Index(runStates, folded.State), 0)) //nolint:gosec // one of eight
	if folded.State.Terminal() && b.State[i]&rowLost == 0 {                                   // whatever came before
		b.State[i] &^= rowUnsure
	}
	b.Attempt[i], b.Wake[i] = uint32(folded.Attempt), uint32(folded.Wake) //nolint:gosec // counted one by one
}

func (c *Columns) name(b *block, i int, field, value string) {
	if value != "" {
		bits := namedBits(field, value)
		b.Names[i][0] |= bits[0]
		b.Names[i][1] |= bits[1]
	}
}

func (c *Columns) at(row int) (*block, int) { return c.blocks[row/blockRows], row % blockRows }

// find returns the row of a run.
func (c *Columns) find(id uint64) (row int, known bool) {
	slot := c.slot(id)
	if slot < 0 || c.slots[slot] == 0 {
		return 0, false
	}
	row = int(c.slots[slot]) - 1
	b, i := c.at(row)
	return row, b.State[i]&rowGone == 0
}

// slot returns the slot of a run, or the free one for it; -1 without slots.
func (c *Columns) slot(id uint64) int {
	if len(c.slots) == 0 {
		return -1
	}
	mask := len(c.slots) - 1
	for s := int(id & uint64(mask)); ; s = (s + 1) & mask { //nolint:gosec // below the number of slots
		if c.slots[s] == 0 {
			return s
		}
		if b, i := c.at(int(c.slots[s]) - 1); b.ID[i] == id {
			return s
		}
	}
}

func (c *Columns) insert(id, at uint64) (row int) {
	if c.rows%blockRows == 0 {
		c.blocks = append(c.blocks, new(block))
	}
	row = c.rows
	c.rows++
	b, i := c.at(row)
	b.ID[i], b.At[i] = id, at
	if c.rows*8 > len(c.slots)*7 {
		c.index()
	} else {
		c.slots[c.slot(id)] = uint32(row) + 1 //nolint:gosec // as many rows do not fit in memory
	}
	return row
}

// index makes the slots anew, for the rows and some more.
func (c *Columns) index() {
	n := 16
	for n*7 < c.rows*8 {
		n *= 2
	}
	c.slots = make([]uint32, n)
	for row := range c.rows {
		if b, i := c.at(row); b.State[i]&rowGone == 0 {
			c.slots[c.slot(b.ID[i])] = uint32(row) + 1 //nolint:gosec // as many rows do not fit in memory
		}
	}
}

// remove makes a row unfindable.
func (c *Columns) remove(row int) {
	b, i := c.at(row)
	if b.State[i]&rowLost != 0 {
		c.lost--
	}
	b.State[i] = rowGone
}

// Forget removes a run whose records LINEAGE has dropped since.
func (c *Columns) Forget(f Found) {
	if row, known := c.find(f.id); known {
		if b, i := c.at(row); b.Last[i] == f.Last {
			c.remove(row)
		}
	}
}

// Trim removes the oldest rows whose records are all below the first sequence of LINEAGE.
func (c *Columns) Trim(first uint64) {
	drop := 0
	for drop < len(c.blocks) && (drop+1)*blockRows <= c.rows && slices.Max(c.blocks[drop].Last[:]) < first {
		drop++
	}
	if drop == 0 {
		return
	}
	for row := range drop * blockRows {
		if b, i := c.at(row); b.State[i]&rowGone == 0 {
			c.remove(row)
		}
	}
	c.blocks = slices.Clone(c.blocks[drop:])
	c.rows -= drop * blockRows
	c.index()
}

// Write writes the columns in a form that Read reads.
func (c *Columns) Write(w io.Writer) error {
	var data []byte
	for _, b := range c.blocks {
		var err error
		if data, err = binary.Append(data[:0], binary.LittleEndian, b); err != nil {
			return fmt.Errorf("lineage: columns: %w", err)
		}
		if _, err = w.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// Read reads columns with a number of rows.
func (c *Columns) Read(r io.Reader, rows int) error {
	data := make([]byte, binary.Size(new(block)))
	for n := 0; n < rows; n += blockRows {
		b := new(block)
		if _, err := io.ReadFull(r, data); err != nil {
			return fmt.Errorf("lineage: columns: %w", err)
		}
		if _, err := binary.Decode(data, binary.LittleEndian, b); err != nil {
			return fmt.Errorf("lineage: columns: %w", err)
		}
		c.blocks = append(c.blocks, b)
	}
	c.rows = rows
	for row := range rows {
		if b, i := c.at(row); b.State[i]&rowLost != 0 && b.State[i]&rowGone == 0 {
			c.lost++
		}
	}
	c.index()
	return nil
}
