package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/rathcluster/rath/blob"
)

// Format is the version of the commit envelope that this release writes.
const Format = 1

// MaxCommit is the most bytes an encoded commit may have.
const MaxCommit = 768 << 10

// Hash is the SHA-256 of a commit's stored bytes: it names the commit and, as
// Prev of the next one, chains the log. The zero Hash stands before the first
// commit.
type Hash [sha256.Size]byte

// String returns 64 hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Short returns the first 8 digits, for people.
func (h Hash) Short() string { return h.String()[:8] }

// MarshalText writes String.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

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

type wireCommit struct {
	Epoch   uint64      `json:"epoch"`
	Events  []wireEvent `json:"events"`
	Format  int         `json:"format"`
	Prev    Hash        `json:"prev"`
	Root    ID          `json:"root"`
	Seq     uint64      `json:"seq"`
	Session ID          `json:"session"`
	Tenant  Tenant      `json:"tenant"`
}

type wireEvent struct {
	Batch  string          `json:"batch,omitempty"`
	Blob   *blob.Ref       `json:"blob,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
	Kind   string          `json:"kind"`
	Schema int             `json:"schema"`
	Time   int64           `json:"time"`
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
		case e.Data == "" || !utf8.ValidString(e.Data):
			return nil, fmt.Errorf("session: event %s of %s has no valid data", e.Kind, c.Key)
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
		b = strconv.AppendInt(b, max(e.Time.UnixMilli(), 0), 10)
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
	var w wireCommit
	if err := json.Unmarshal(raw, &w); err != nil {
		return Commit{}, fmt.Errorf("session: commit: %w: %w", ErrForeign, err)
	}
	if w.Format > Format {
		return Commit{}, fmt.Errorf("session: commit format %d, this release reads up to %d: %w", w.Format, Format, ErrTooOld)
	}
	c := Commit{Key: Key{w.Tenant, w.Session}, Root: w.Root, Seq: w.Seq, Epoch: w.Epoch, Prev: w.Prev}
	c.Events = make([]Event, len(w.Events))
	for i, e := range w.Events {
		c.Events[i] = Event{Kind: e.Kind, Schema: e.Schema, Batch: e.Batch, Time: time.UnixMilli(e.Time).UTC(), Data: string(e.Data)}
		if e.Blob != nil {
			c.Events[i].Blob = *e.Blob
		}
	}
	back, err := Encode(c)
	if err != nil {
		return Commit{}, fmt.Errorf("session: commit: %w: %w", ErrForeign, err)
	}
	if !bytes.Equal(back, raw) {
		return Commit{}, fmt.Errorf("session: commit is not in canonical form: %w", ErrForeign)
	}
	return c, nil
}

// Successor checks that raw, as stored under a key after a position, is that
// log's next commit and returns it. Readers and writers of a log use this one
// check, so that all of them skip the same foreign bytes.
func Successor(k Key, after Position, raw []byte) (Commit, Hash, error) {
	c, err := Decode(raw)
	if err != nil {
		return c, Hash{}, err
	}
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
	return c, Hash(sha256.Sum256(raw)), err
}
