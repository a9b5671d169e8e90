package events

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// MaxToken is the maximum size of the text of a position in bytes.
const MaxToken = lineage.MaxCursor + 128

// Errors of positions.
var (
	// ErrToken means that a text is no position.
	ErrToken = errors.New("events: not a position of a stream")
	// ErrForeign means that a position is of another stream or another store.
	ErrForeign = errors.New("events: a position of another stream")
	// ErrFuture means that a position is behind everything that is recorded.
	ErrFuture = errors.New("events: a position behind the end of the stream")
)

// A Position is the place of a reader in a stream of events: behind all events of the
// records that its cursor counts as read, and behind the first events of one more record.
// It stays valid as its cursor does.
type Position struct {
	Cursor *lineage.Cursor
	part   part
}

// part counts the events sent of a record.
type part struct {
	generation, partition uint32
	seq                   uint64
	k, sent               int
}

// Scope names the streams among which positions can be exchanged: those of a tree, or of a
// tenant for an empty root.
type Scope struct {
	Tenant session.Tenant
	Root   session.ID
}

// mark distinguishes scopes in a token.
func (s Scope) mark() string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(string(s.Tenant)+"."+string(s.Root)))), 36)
}

// Token returns the position as a text of letters, digits, ".", "-" and "_".
func (p *Position) Token(s Scope) string {
	text := p.Cursor.String() + "." + s.mark()
	if q := p.part; q.sent > 0 {
		text += fmt.Sprintf(".%d.%d.%d.%d.%d", q.generation, q.partition, q.seq, q.k, q.sent)
	}
	return text
}

// ParseToken reads a position of a scope. It fails with ErrToken or ErrForeign.
func ParseToken(text string, s Scope) (*Position, error) {
	if len(text) > MaxToken {
		return nil, fmt.Errorf("%w: it has %d bytes, more than %d", ErrToken, len(text), MaxToken)
	}
	fields := strings.Split(text, ".")
	if len(fields) != 2 && len(fields) != 7 {
		return nil, ErrToken
	}
	c, err := lineage.ParseCursor(fields[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	p := &Position{Cursor: c}
	if len(fields) == 7 {
		var n [5]uint64
		for i, f := range fields[2:] {
			bits := []int{32, 32, 64, 31, 8}[i]
			if n[i], err = strconv.ParseUint(f, 10, bits); err != nil || f != strconv.FormatUint(n[i], 10) {
				return nil, ErrToken
			}
		}
		if n[4] == 0 || n[4] >= MaxOf {
			return nil, ErrToken
		}
		p.part = part{uint32(n[0]), uint32(n[1]), n[2], int(n[3]), int(n[4])} //nolint:gosec // parsed with these sizes
	}
	if fields[1] != s.mark() {
		return nil, ErrForeign
	}
	return p, nil
}

// Within returns ErrForeign or ErrFuture for a position that no reader of the store can
// have: end is behind all that is committed.
func (p *Position) Within(end *lineage.Cursor) error {
	switch known, reached := p.Cursor.Within(end); {
	case !known:
		return fmt.Errorf("%w: it is of another store", ErrForeign)
	case !reached:
		return ErrFuture
	}
	return nil
}

// Pass returns the number of the record's events that the reader has, and counts the
// record as read; all are len(Of(r)) or more.
func (p *Position) Pass(r *messages.Record) (sent int) {
	at := partOf(r)
	if p.part.sent > 0 && at.same(p.part) {
		sent = p.part.sent
		p.part = part{}
	}
	if !p.Cursor.Take(r) {
		return MaxOf
	}
	return sent
}

// Clone returns an independent copy of p.
func (p *Position) Clone() *Position { return &Position{p.Cursor.Clone(), p.part} }

// Before returns the position behind the first events of a record that the reader lacks;
// nil while the reader still lacks the rest of another record, as after a repair.
func (p *Position) Before(r *messages.Record, sent int) *Position {
	at := partOf(r)
	if p.part.sent > 0 && !at.same(p.part) {
		return nil
	}
	at.sent = sent
	return &Position{p.Cursor, at}
}

func partOf(r *messages.Record) part {
	g, _, _ := r.Session.Locate()
	return part{generation: g, partition: r.Partition, seq: r.Seq, k: r.K}
}

func (p part) same(o part) bool {
	return p.generation == o.generation && p.partition == o.partition && p.seq == o.seq && p.k == o.k
}
