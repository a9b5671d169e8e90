package audit

import (
	"encoding/hex"
	"encoding/json"
	"strings"
)

// maxCommit is the maximum size of a commit in bytes (FORMAT.md, commits).
const maxCommit = 786_432

// maxTime is the last millisecond of the year 9999.
const maxTime = 253402300799999

// commit is one message of an event stream.
type commit struct {
	epoch   uint64
	events  []event
	prev    string // 64 hexadecimal digits
	root    string
	seq     uint64
	session string
	tenant  string
}

// event is one fact of a commit. data is empty until its blob is loaded.
type event struct {
	batch  string
	data   string
	blob   string // digest
	size   uint64
	kind   string
	schema uint64
	time   int64
}

// readCommit reads stored bytes; ok reports whether they are a commit in the canonical
// form of FORMAT.md.
func readCommit(raw string) (c commit, ok bool) {
	s := scanner{s: raw}
	if len(raw) > maxCommit || !s.eat(`{"epoch":`) {
		return c, false
	}
	if c.epoch, ok = s.number(); !ok || !s.eat(`,"events":[`) {
		return c, false
	}
	for !s.eat("]") {
		if len(c.events) > 0 && !s.eat(",") {
			return c, false
		}
		e, ok := s.event()
		if !ok {
			return c, false
		}
		c.events = append(c.events, e)
	}
	if !s.eat(`,"format":1,"prev":"`) {
		return c, false
	}
	if c.prev, ok = s.hex64(); !ok || !s.eat(`","root":`) {
		return c, false
	}
	if c.root, ok = s.string(); !ok || !s.eat(`,"seq":`) {
		return c, false
	}
	if c.seq, ok = s.number(); !ok || !s.eat(`,"session":`) {
		return c, false
	}
	if c.session, ok = s.string(); !ok || !s.eat(`,"tenant":`) {
		return c, false
	}
	if c.tenant, ok = s.string(); !ok || !s.eat("}") {
		return c, false
	}
	return c, s.i == len(raw) && len(c.events) > 0
}

func (c *scanner) event() (e event, ok bool) {
	if !c.eat("{") {
		return e, false
	}
	if c.eat(`"batch":`) {
		if e.batch, ok = c.string(); !ok || e.batch == "" || !c.eat(",") {
			return e, false
		}
	}
	switch {
	case c.eat(`"blob":{"digest":"`):
		if e.blob, ok = c.hex64(); !ok || !c.eat(`","size":`) {
			return e, false
		}
		if e.size, ok = c.number(); !ok || !c.eat("},") {
			return e, false
		}
	case c.eat(`"data":`):
		if e.data, ok = c.raw(); !ok || !c.eat(",") {
			return e, false
		}
	default:
		return e, false
	}
	if !c.eat(`"kind":`) {
		return e, false
	}
	if e.kind, ok = c.string(); !ok || !c.eat(`,"schema":`) {
		return e, false
	}
	if e.schema, ok = c.number(); !ok || !c.eat(`,"time":`) {
		return e, false
	}
	ms, ok := c.number()
	e.time = int64(min(ms, maxTime)) //nolint:gosec // bounded by min
	return e, ok && ms <= maxTime && c.eat("}")
}

// hex64 reads 64 lower-case hexadecimal digits.
func (c *scanner) hex64() (string, bool) {
	if len(c.s)-c.i < 64 {
		return "", false
	}
	text := c.s[c.i : c.i+64]
	c.i += 64
	return text, isHex64(text)
}

func isHex64(s string) bool {
	if len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if b := s[i]; (b < '0' || b > '9') && (b < 'a' || b > 'f') {
			return false
		}
	}
	return true
}

// mark is the first half of a hash, enough to tell commits apart.
type mark [16]byte

func markOf(hexText string) (m mark) {
	if len(hexText) >= 2*len(m) {
		_, _ = hex.Decode(m[:], []byte(hexText[:2*len(m)])) // digits were checked
	}
	return m
}

// looksLikeCommit reports whether bytes that are not a commit resemble one.
func looksLikeCommit(raw []byte) bool {
	var v struct {
		Events  []json.RawMessage `json:"events"`
		Format  int               `json:"format"`
		Session string            `json:"session"`
	}
	return json.Unmarshal(raw, &v) == nil && (v.Format > 0 || v.Session != "" || len(v.Events) > 0)
}

// isID reports whether s is a valid id (FORMAT.md, conventions).
func isID(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		b := s[i]
		if (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && (b < '0' || b > '9') && b != '_' && b != '-' {
			return false
		}
	}
	return true
}

// placeOf reads generation and partition from a session id that Rath generated.
func placeOf(id string) (place string, ok bool) {
	rest, p, ok := cutLast(id, "-")
	if !ok {
		return "", false
	}
	body, g, ok := cutLast(rest, "-")
	if !ok || body == "" {
		return "", false
	}
	gen, okG := base36(g)
	part, okP := base36(p)
	return gen + "." + part, okG && okP
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
