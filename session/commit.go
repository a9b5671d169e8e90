package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Format is the version of the commit envelope that this release writes.
const Format = 1

// MaxCommit is the most bytes an encoded commit may have.
const MaxCommit = 768 << 10

// maxMillis is the last moment of the year 9999: what JSON readers of other
// languages take for a date.
const maxMillis = 253402300799999

// Hash is the SHA-256 of a commit's stored bytes: it names the commit and, as
// Prev of the next one, chains the log. The zero Hash stands before the first
// commit.
type Hash [sha256.Size]byte

// String returns 64 hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Short returns the first 8 digits, for people.
func (h Hash) Short() string { return h.String()[:8] }

// MarshalText writes String.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText reads what MarshalText writes.
func (h *Hash) UnmarshalText(b []byte) error {
	if len(b) != 2*len(h) {
		return fmt.Errorf("session: hash of %d characters: want %d", len(b), 2*len(h))
	}
	_, err := hex.Decode(h[:], b)
	return err
}

// Commit is what one append makes durable: one or more events that are
// recorded together or not at all.
type Commit struct {
	Key
	Root   ID     // the oldest ancestor
	Seq    uint64 // 1, 2, 3 ... per session
	Epoch  uint64 // the writer's incarnation, never falling
	Prev   Hash
	Events []Event
}

// Position is where a log stands after a commit. Token is the backend's own
// sequence, which its compare-and-set uses. The zero Position is the empty log.
type Position struct {
	Seq   uint64
	Token uint64
	Hash  Hash
}

// Entry is a commit as a log holds it.
type Entry struct {
	Commit Commit
	At     Position
	Raw    string // the stored bytes, of which At.Hash is the hash
}

// Encode returns the canonical bytes of a commit: what is stored and hashed.
// The Data of each event must be canonical JSON already.
func Encode(c Commit) ([]byte, error) {
	size := 256
	for i := range c.Events {
		size += len(c.Events[i].Data) + 160
	}
	b := make([]byte, 0, size)
	b = append(b, `{"epoch":`...)
	b = strconv.AppendUint(b, c.Epoch, 10)
	b = append(b, `,"events":[`...)
	for i, e := range c.Events {
		if e.Schema < 0 || e.Schema > math.MaxInt32 || e.Blob.Size < 0 {
			return nil, fmt.Errorf("session: event %s of %s: schema %d, size %d", e.Kind, c.Key, e.Schema, e.Blob.Size)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		if e.Batch != "" {
			b = append(b, `"batch":`...)
			b = appendString(b, e.Batch)
			b = append(b, ',')
		}
		switch {
		case !e.Blob.Digest.IsZero():
			b = append(b, `"blob":{"digest":"`...)
			b = append(b, e.Blob.Digest.String()...)
			b = append(b, `","size":`...)
			b = strconv.AppendInt(b, e.Blob.Size, 10)
			b = append(b, `},`...)
		case !canonical(e.Data):
			return nil, fmt.Errorf("session: event %s of %s: its data is %w: encode it with Marshal", e.Kind, c.Key, errCanonical)
		default:
			b = append(b, `"data":`...)
			b = append(b, e.Data...)
			b = append(b, ',')
		}
		b = append(b, `"kind":`...)
		b = appendString(b, e.Kind)
		b = append(b, `,"schema":`...)
		b = strconv.AppendInt(b, int64(e.Schema), 10)
		b = append(b, `,"time":`...)
		b = strconv.AppendInt(b, min(max(e.Time.UnixMilli(), 0), maxMillis), 10)
		b = append(b, '}')
	}
	b = append(b, `],"format":`...)
	b = strconv.AppendInt(b, Format, 10)
	b = append(b, `,"prev":"`...)
	b = hex.AppendEncode(b, c.Prev[:])
	b = append(b, `","root":`...)
	b = appendString(b, string(c.Root))
	b = append(b, `,"seq":`...)
	b = strconv.AppendUint(b, c.Seq, 10)
	b = append(b, `,"session":`...)
	b = appendString(b, string(c.ID))
	b = append(b, `,"tenant":`...)
	b = appendString(b, string(c.Tenant))
	b = append(b, '}')
	if len(b) > MaxCommit {
		return nil, fmt.Errorf("session: commit %d of %s has %d bytes: %w", c.Seq, c.Key, len(b), ErrTooLarge)
	}
	return b, nil
}

// appendString writes s as a JSON string. Ids and kinds need no escaping;
// anything else takes the slow way.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return append(b, mustMarshal(clean(s))...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// Decode reads stored bytes. It accepts only what Encode writes, byte for
// byte, so that one commit has one encoding; ErrForeign marks everything else
// and ErrTooOld an envelope of a later release.
func Decode(raw []byte) (Commit, error) {
	r := reader{s: string(raw)}
	c, ok := r.commit()
	if ok && r.i == len(r.s) {
		return c, nil
	}
	var w struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return Commit{}, fmt.Errorf("session: commit: %w: %w", ErrForeign, err)
	}
	if w.Format > Format {
		return Commit{}, fmt.Errorf("session: commit format %d, this release reads up to %d: %w", w.Format, Format, ErrTooOld)
	}
	return Commit{}, fmt.Errorf("session: commit is not in canonical form near byte %d: %w", r.i, ErrForeign)
}

// commit is the inverse of Encode. What it returns shares the text.
func (r *reader) commit() (c Commit, ok bool) {
	if len(r.s) > MaxCommit || !r.lit(`{"epoch":`) {
		return c, false
	}
	if c.Epoch, ok = r.uint(math.MaxUint64); !ok || !r.lit(`,"events":[`) {
		return c, false
	}
	for !r.lit(`],"format":`) {
		if len(c.Events) > 0 && !r.lit(",") {
			return c, false
		}
		e, ok := r.event()
		if !ok {
			return c, false
		}
		c.Events = append(c.Events, e)
	}
	if f, ok := r.uint(Format); !ok || f != Format || !r.lit(`,"prev":"`) || !r.digest(c.Prev[:]) || !r.lit(`","root":`) {
		return c, false
	}
	var root, id, tenant string
	if root, ok = r.str(); !ok || !r.lit(`,"seq":`) {
		return c, false
	}
	if c.Seq, ok = r.uint(math.MaxUint64); !ok || !r.lit(`,"session":`) {
		return c, false
	}
	if id, ok = r.str(); !ok || !r.lit(`,"tenant":`) {
		return c, false
	}
	if tenant, ok = r.str(); !ok || !r.lit(`}`) {
		return c, false
	}
	c.Root, c.Key = ID(root), Key{Tenant(tenant), ID(id)}
	return c, true
}

func (r *reader) event() (e Event, ok bool) {
	if !r.lit(`{`) {
		return e, false
	}
	if r.lit(`"batch":`) {
		if e.Batch, ok = r.str(); !ok || e.Batch == "" || !r.lit(`,`) {
			return e, false
		}
	}
	switch {
	case r.lit(`"blob":{"digest":"`):
		if !r.digest(e.Blob.Digest[:]) || e.Blob.Digest.IsZero() || !r.lit(`","size":`) {
			return e, false
		}
		size, ok := r.uint(math.MaxInt64)
		if !ok || !r.lit(`},`) {
			return e, false
		}
		e.Blob.Size = int64(size)
	case r.lit(`"data":`):
		start := r.i
		if !r.value(0) {
			return e, false
		}
		e.Data = r.s[start:r.i]
		if !r.lit(`,`) {
			return e, false
		}
	default:
		return e, false
	}
	if !r.lit(`"kind":`) {
		return e, false
	}
	if e.Kind, ok = r.str(); !ok || !r.lit(`,"schema":`) {
		return e, false
	}
	schema, ok := r.uint(math.MaxInt32)
	if !ok || !r.lit(`,"time":`) {
		return e, false
	}
	ms, ok := r.uint(maxMillis)
	if !ok || !r.lit(`}`) {
		return e, false
	}
	e.Schema, e.Time = int(schema), time.UnixMilli(int64(ms)).UTC()
	return e, true
}

// digest reads exactly as many lower-case hexadecimal digits as into takes.
func (r *reader) digest(into []byte) bool {
	n := 2 * len(into)
	if len(r.s)-r.i < n {
		return false
	}
	text := r.s[r.i : r.i+n]
	for i := range n {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	_, err := hex.Decode(into, []byte(text))
	r.i += n
	return err == nil
}

// Successor checks that raw, as stored under a key after a position, is that
// log's next commit and returns it. Readers and writers of a log use this one
// check, so that all of them skip the same foreign bytes.
func Successor(k Key, after Position, raw []byte) (Commit, Hash, error) {
	c, err := Decode(raw)
	if err != nil {
		return c, Hash{}, err
	}
	return c, Hash(sha256.Sum256(raw)), c.Follows(k, after)
}

// Follows checks that a decoded commit, stored under a key after a position, is
// that log's next one; see [Successor].
func (c Commit) Follows(k Key, after Position) (err error) {
	switch {
	case c.Key != k:
		err = fmt.Errorf("session: commit of %s under %s: %w", c.Key, k, ErrForeign)
	case c.Seq != after.Seq+1:
		err = fmt.Errorf("session: commit %d of %s follows %d: %w", c.Seq, k, after.Seq, ErrForeign)
	case c.Prev != after.Hash:
		err = fmt.Errorf("session: commit %d of %s names %s as the one before, which is %s: %w", c.Seq, k, c.Prev.Short(), after.Hash.Short(), ErrForeign)
	case len(c.Events) == 0:
		err = fmt.Errorf("session: commit %d of %s has no events: %w", c.Seq, k, ErrForeign)
	}
	return err
}
