package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxDepth is how deep canonical JSON may nest. Event data is flat: what users
// nest (tool arguments, outcomes) travels as text inside it.
const maxDepth = 64

var errCanonical = errors.New("not canonical JSON")

// Marshal encodes event data canonically: no white space, object keys sorted,
// integers only, each character escaped in one way. It fails on floats.
func Marshal(v any) (string, error) {
	s, err := encodeJSON(v)
	if err != nil {
		return "", err
	}
	if canonical(s) {
		return s, nil
	}
	// A type whose fields are declared in another order: sort them.
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return "", fmt.Errorf("session: encode event: %w", err)
	}
	if s, err = encodeJSON(tree); err != nil {
		return "", err
	}
	if !canonical(s) {
		return "", fmt.Errorf("session: encode event: %T: %w: integers, text, lists and objects only, nested less than %d deep", v, errCanonical, maxDepth)
	}
	return s, nil
}

// encoder writes JSON into memory that it uses again.
type encoder struct {
	b   bytes.Buffer
	enc *json.Encoder
}

// encoders are those that are free. Events are encoded all the time, and most of
// what that takes is room that grows.
var encoders = sync.Pool{New: func() any {
	e := new(encoder)
	e.enc = json.NewEncoder(&e.b)
	e.enc.SetEscapeHTML(false)
	return e
}}

// maxEncoder bounds the room that is kept for later.
const maxEncoder = 64 << 10

func encodeJSON(v any) (string, error) {
	e := encoders.Get().(*encoder)
	err := e.enc.Encode(v)
	s := strings.TrimSuffix(e.b.String(), "\n")
	if e.b.Cap() <= maxEncoder {
		e.b.Reset()
		encoders.Put(e)
	}
	if err != nil {
		return "", fmt.Errorf("session: encode event: %w", err)
	}
	return s, nil
}

func mustMarshal(v any) string {
	s, err := Marshal(v)
	if err != nil {
		panic(err) // only for types of this package, which always encode
	}
	return s
}

// canonical reports whether s is one JSON value in the form of Marshal.
func canonical(s string) bool {
	r := reader{s: s}
	return r.value(0) && r.i == len(s)
}

// reader walks over canonical JSON. Its methods return false, and leave the
// position anywhere, when the text at the position is something else.
type reader struct {
	s   string
	i   int
	own bool // texts that are kept do not share s, see Unmarshal
}

func (r *reader) lit(want string) bool {
	if !strings.HasPrefix(r.s[r.i:], want) {
		return false
	}
	r.i += len(want)
	return true
}

func (r *reader) value(depth int) bool {
	if r.i >= len(r.s) || depth > maxDepth {
		return false
	}
	switch c := r.s[r.i]; {
	case c == '"':
		return r.skipString()
	case c == '{':
		return r.object(depth)
	case c == '[':
		return r.array(depth)
	case c == 't':
		return r.lit("true")
	case c == 'f':
		return r.lit("false")
	case c == 'n':
		return r.lit("null")
	}
	return r.skipInt()
}

func (r *reader) object(depth int) bool {
	r.i++
	if r.lit("}") {
		return true
	}
	last := ""
	for first := true; ; first = false {
		key, ok := r.str()
		if !ok || !first && key <= last || !r.lit(":") || !r.value(depth+1) {
			return false
		}
		last = key
		if !r.lit(",") {
			return r.lit("}")
		}
	}
}

func (r *reader) array(depth int) bool {
	r.i++
	if r.lit("]") {
		return true
	}
	for {
		if !r.value(depth + 1) {
			return false
		}
		if !r.lit(",") {
			return r.lit("]")
		}
	}
}

// skipInt moves over an integer without leading zeros.
func (r *reader) skipInt() bool {
	start := r.i
	if r.i < len(r.s) && r.s[r.i] == '-' {
		r.i++
	}
	digits := r.i
	for r.i < len(r.s) && r.s[r.i] >= '0' && r.s[r.i] <= '9' {
		r.i++
	}
	switch {
	case r.i == digits:
		return false
	case r.s[digits] == '0':
		return r.i == digits+1 && digits == start
	}
	return true
}

// skipString moves over a string and checks that each character is written in
// the one way that Marshal writes it.
func (r *reader) skipString() bool {
	if !r.lit(`"`) {
		return false
	}
	for {
		i := r.i
		for i < len(r.s) && plain[r.s[i]] {
			i++
		}
		if r.i = i; i == len(r.s) {
			return false
		}
		switch c := r.s[r.i]; {
		case c == '"':
			r.i++
			return true
		case c == '\\':
			if !r.escape() {
				return false
			}
		case c < 0x20:
			return false
		default:
			ch, n := utf8.DecodeRuneInString(r.s[r.i:])
			if ch == utf8.RuneError && n == 1 || ch == '\u2028' || ch == '\u2029' {
				return false
			}
			r.i += n
		}
	}
}

// plain are the bytes that stand for themselves in a string.
var plain = func() (p [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		p[c] = c != '"' && c != '\\'
	}
	return p
}()

func (r *reader) escape() bool {
	rest := r.s[r.i+1:]
	if rest == "" {
		return false
	}
	switch rest[0] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		r.i += 2
		return true
	case 'u':
	default:
		return false
	}
	if len(rest) < 5 {
		return false
	}
	hex := rest[1:5]
	r.i += 6
	if hex == "2028" || hex == "2029" {
		return true
	}
	const digits = "0123456789abcdef"
	low := strings.IndexByte(digits, hex[3])
	if hex[:2] != "00" || hex[2] != '0' && hex[2] != '1' || low < 0 {
		return false
	}
	switch c := byte(low) | (hex[2]-'0')<<4; c {
	case '\b', '\f', '\n', '\r', '\t':
		return false // these have a short form
	}
	return true
}

// str reads a string.
func (r *reader) str() (string, bool) {
	start := r.i
	if !r.skipString() {
		return "", false
	}
	raw := r.s[start:r.i]
	if strings.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], true
	}
	var s string
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return "", false
	}
	return s, true
}

// uint reads an integer of [0, limit].
func (r *reader) uint(limit uint64) (uint64, bool) {
	start := r.i
	if !r.skipInt() || r.s[start] == '-' || r.i-start > 20 {
		return 0, false
	}
	n := uint64(0)
	for _, c := range []byte(r.s[start:r.i]) {
		d := uint64(c - '0')
		if d > limit || n > (limit-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}
