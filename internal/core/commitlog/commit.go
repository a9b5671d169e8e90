package commitlog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/rathcluster/rath/internal/core/canonical"
	"github.com/rathcluster/rath/session"
)

// Format is the version of the commit envelope that this release writes.
const Format = 1

// MaxCommit is the maximum size of an encoded commit, in bytes.
const MaxCommit = 768 << 10

// maxMillis is the last millisecond of the year 9999, the latest date that JSON readers
// of other languages accept.
const maxMillis = 253402300799999

// Commit is the unit of one append: one or more events that are recorded together or
// not at all.
type Commit struct {
	session.Key
	Root   session.ID // the oldest ancestor
	Seq    uint64     // 1, 2, 3 ... per session
	Epoch  uint64     // the writer's incarnation, never falling
	Prev   session.Hash
	Events []session.Event
}

// Entry is a stored commit.
type Entry struct {
	Commit Commit
	At     Position
	Raw    string // the stored bytes, of which At.Hash is the hash
}

// Encode returns the canonical bytes of a commit, which are stored and hashed. The Data
// of each event must be canonical JSON already.
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
			b = canonical.AppendString(b, e.Batch)
			b = append(b, ',')
		}
		switch {
		case !e.Blob.Digest.IsZero():
			b = append(b, `"blob":{"digest":"`...)
			b = append(b, e.Blob.Digest.String()...)
			b = append(b, `","size":`...)
			b = strconv.AppendInt(b, e.Blob.Size, 10)
			b = append(b, `},`...)
		case !canonical.Valid(e.Data):
			return nil, fmt.Errorf("session: event %s of %s: its data is %w: encode it with Marshal", e.Kind, c.Key, canonical.ErrForm)
		default:
			b = append(b, `"data":`...)
			b = append(b, e.Data...)
			b = append(b, ',')
		}
		b = append(b, `"kind":`...)
		b = canonical.AppendString(b, e.Kind)
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
	b = canonical.AppendString(b, string(c.Root))
	b = append(b, `,"seq":`...)
	b = strconv.AppendUint(b, c.Seq, 10)
	b = append(b, `,"session":`...)
	b = canonical.AppendString(b, string(c.ID))
	b = append(b, `,"tenant":`...)
	b = canonical.AppendString(b, string(c.Tenant))
	b = append(b, '}')
	if len(b) > MaxCommit {
		return nil, fmt.Errorf("session: commit %d of %s has %d bytes: %w", c.Seq, c.Key, len(b), session.ErrTooLarge)
	}
	return b, nil
}

// Decode reads stored bytes. It accepts only the exact output of Encode, so that one
// commit has one encoding. ErrForeign marks other input, and ErrTooOld an envelope of a
// later release.
func Decode(raw []byte) (Commit, error) {
	r := reader{canonical.Reader{S: string(raw)}}
	c, ok := r.commit()
	if ok && r.I == len(r.S) {
		return c, nil
	}
	var w struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return Commit{}, fmt.Errorf("session: commit: %w: %w", session.ErrForeign, err)
	}
	if w.Format > Format {
		return Commit{}, fmt.Errorf("session: commit format %d, this release reads up to %d: %w", w.Format, Format, session.ErrTooOld)
	}
	return Commit{}, fmt.Errorf("session: commit is not in canonical form near byte %d: %w", r.I, session.ErrForeign)
}

// reader reads the output of Encode.
type reader struct{ canonical.Reader }

// commit is the inverse of Encode. The returned commit shares the text.
func (r *reader) commit() (c Commit, ok bool) {
	if len(r.S) > MaxCommit || !r.Lit(`{"epoch":`) {
		return c, false
	}
	if c.Epoch, ok = r.Uint(math.MaxUint64); !ok || !r.Lit(`,"events":[`) {
		return c, false
	}
	for !r.Lit(`],"format":`) {
		if len(c.Events) > 0 && !r.Lit(",") {
			return c, false
		}
		e, ok := r.event()
		if !ok {
			return c, false
		}
		c.Events = append(c.Events, e)
	}
	if f, ok := r.Uint(Format); !ok || f != Format || !r.Lit(`,"prev":"`) || !r.Digest(c.Prev[:]) || !r.Lit(`","root":`) {
		return c, false
	}
	var root, id, tenant string
	if root, ok = r.Str(); !ok || !r.Lit(`,"seq":`) {
		return c, false
	}
	if c.Seq, ok = r.Uint(math.MaxUint64); !ok || !r.Lit(`,"session":`) {
		return c, false
	}
	if id, ok = r.Str(); !ok || !r.Lit(`,"tenant":`) {
		return c, false
	}
	if tenant, ok = r.Str(); !ok || !r.Lit(`}`) {
		return c, false
	}
	c.Root, c.Key = session.ID(root), session.Key{Tenant: session.Tenant(tenant), ID: session.ID(id)}
	return c, true
}

func (r *reader) event() (e session.Event, ok bool) {
	if !r.Lit(`{`) {
		return e, false
	}
	if r.Lit(`"batch":`) {
		if e.Batch, ok = r.Str(); !ok || e.Batch == "" || !r.Lit(`,`) {
			return e, false
		}
	}
	switch {
	case r.Lit(`"blob":{"digest":"`):
		if !r.Digest(e.Blob.Digest[:]) || e.Blob.Digest.IsZero() || !r.Lit(`","size":`) {
			return e, false
		}
		size, ok := r.Uint(math.MaxInt64)
		if !ok || !r.Lit(`},`) {
			return e, false
		}
		e.Blob.Size = int64(size)
	case r.Lit(`"data":`):
		start := r.I
		if !r.Value(0) {
			return e, false
		}
		e.Data = r.S[start:r.I]
		if !r.Lit(`,`) {
			return e, false
		}
	default:
		return e, false
	}
	if !r.Lit(`"kind":`) {
		return e, false
	}
	if e.Kind, ok = r.Str(); !ok || !r.Lit(`,"schema":`) {
		return e, false
	}
	schema, ok := r.Uint(math.MaxInt32)
	if !ok || !r.Lit(`,"time":`) {
		return e, false
	}
	ms, ok := r.Uint(maxMillis)
	if !ok || !r.Lit(`}`) {
		return e, false
	}
	e.Schema, e.Time = int(schema), time.UnixMilli(int64(ms)).UTC()
	return e, true
}

// Successor checks that raw, as stored under a key after a position, is that log's next
// commit and returns it. Readers and writers of a log all use this check, so that they
// skip the same foreign bytes.
func Successor(k session.Key, after Position, raw []byte) (Commit, session.Hash, error) {
	c, err := Decode(raw)
	if err != nil {
		return c, session.Hash{}, err
	}
	return c, session.Hash(sha256.Sum256(raw)), c.Follows(k, after)
}

// Follows checks that a decoded commit, stored under a key after a position, is
// that log's next one; see [Successor].
func (c Commit) Follows(k session.Key, after Position) (err error) {
	switch {
	case c.Key != k:
		err = fmt.Errorf("session: commit of %s under %s: %w", c.Key, k, session.ErrForeign)
	case c.Seq != after.Seq+1:
		err = fmt.Errorf("session: commit %d of %s follows %d: %w", c.Seq, k, after.Seq, session.ErrForeign)
	case c.Prev != after.Hash:
		err = fmt.Errorf("session: commit %d of %s names %s as the one before, which is %s: %w", c.Seq, k, c.Prev.Short(), after.Hash.Short(), session.ErrForeign)
	case len(c.Events) == 0:
		err = fmt.Errorf("session: commit %d of %s has no events: %w", c.Seq, k, session.ErrForeign)
	}
	return err
}

// HashOf returns the hash that names stored bytes.
func HashOf(raw []byte) session.Hash { return sha256.Sum256(raw) }
