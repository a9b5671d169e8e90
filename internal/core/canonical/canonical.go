package canonical

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxDepth bounds the nesting of canonical JSON. Event data is flat: nested user data
// (tool arguments, outcomes) is stored in it as text.
const maxDepth = 64

var ErrForm = errors.New("not canonical JSON")

// Marshal encodes event data canonically: no white space, object keys sorted,
// integers only, each character escaped in one way. It fails on floats.
func Marshal(v any) (string, error) {
	s, err := Encode(v)
	if err != nil {
		return "", err
	}
	if Valid(s) {
		return s, nil
	}
	// The fields of a type may be declared in another order: sort them.
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return "", fmt.Errorf("session: encode event: %w", err)
	}
	if s, err = Encode(tree); err != nil {
		return "", err
	}
	if !Valid(s) {
		return "", fmt.Errorf("session: encode event: %T: %w: integers, text, lists and objects only, nested less than %d deep", v, ErrForm, maxDepth)
	}
	return s, nil
}

// encoder writes JSON into a reusable buffer.
type encoder struct {
	b   bytes.Buffer
	enc *json.Encoder
}

// encoders is a pool. Events are encoded all the time, and growing the buffer is most
// of the cost.
var encoders = sync.Pool{New: func() any {
	e := new(encoder)
	e.enc = json.NewEncoder(&e.b)
	e.enc.SetEscapeHTML(false)
	return e
}}

// maxEncoder bounds the buffers that are kept for reuse.
const maxEncoder = 64 << 10

func Encode(v any) (string, error) {
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

func MustMarshal(v any) string {
	s, err := Marshal(v)
	if err != nil {
		panic(err) // only for types of this package, which never fail to encode
	}
	return s
}

// Valid reports whether s is one JSON value in the form of Marshal.
func Valid(s string) bool {
	r := Reader{S: s}
	return r.Value(0) && r.I == len(s)
}

// Reader reads canonical JSON. If the text at the position does not match, a method
// returns false and leaves the position undefined.
type Reader struct {
	S string
	I int // position of the next read
}

func (r *Reader) Lit(want string) bool {
	if !strings.HasPrefix(r.S[r.I:], want) {
		return false
	}
	r.I += len(want)
	return true
}

func (r *Reader) Value(depth int) bool {
	if r.I >= len(r.S) || depth > maxDepth {
		return false
	}
	switch c := r.S[r.I]; {
	case c == '"':
		return r.skipString()
	case c == '{':
		return r.object(depth)
	case c == '[':
		return r.array(depth)
	case c == 't':
		return r.Lit("true")
	case c == 'f':
		return r.Lit("false")
	case c == 'n':
		return r.Lit("null")
	}
	return r.skipInt()
}

func (r *Reader) object(depth int) bool {
	r.I++
	if r.Lit("}") {
		return true
	}
	last := ""
	for first := true; ; first = false {
		key, ok := r.Str()
		if !ok || !first && key <= last || !r.Lit(":") || !r.Value(depth+1) {
			return false
		}
		last = key
		if !r.Lit(",") {
			return r.Lit("}")
		}
	}
}

func (r *Reader) array(depth int) bool {
	r.I++
	if r.Lit("]") {
		return true
	}
	for {
		if !r.Value(depth + 1) {
			return false
		}
		if !r.Lit(",") {
			return r.Lit("]")
		}
	}
}

// skipInt skips an integer without leading zeros.
func (r *Reader) skipInt() bool {
	start := r.I
	if r.I < len(r.S) && r.S[r.I] == '-' {
		r.I++
	}
	digits := r.I
	for r.I < len(r.S) && r.S[r.I] >= '0' && r.S[r.I] <= '9' {
		r.I++
	}
	switch {
	case r.I == digits:
		return false
	case r.S[digits] == '0':
		return r.I == digits+1 && digits == start
	}
	return true
}

// skipString skips a string and checks that each character is escaped as Marshal
// escapes it.
func (r *Reader) skipString() bool {
	if !r.Lit(`"`) {
		return false
	}
	for {
		i := r.I
		for i < len(r.S) && plain[r.S[i]] {
			i++
		}
		if r.I = i; i == len(r.S) {
			return false
		}
		switch c := r.S[r.I]; {
		case c == '"':
			r.I++
			return true
		case c == '\\':
			if !r.escape() {
				return false
			}
		case c < 0x20:
			return false
		default:
			ch, n := utf8.DecodeRuneInString(r.S[r.I:])
			if ch == utf8.RuneError && n == 1 || ch == '\u2028' || ch == '\u2029' {
				return false
			}
			r.I += n
		}
	}
}

// plain are the bytes that need no escape in a string.
var plain = func() (p [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		p[c] = c != '"' && c != '\\'
	}
	return p
}()

func (r *Reader) escape() bool {
	rest := r.S[r.I+1:]
	if rest == "" {
		return false
	}
	switch rest[0] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		r.I += 2
		return true
	case 'u':
	default:
		return false
	}
	if len(rest) < 5 {
		return false
	}
	hex := rest[1:5]
	r.I += 6
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
func (r *Reader) Str() (string, bool) {
	start := r.I
	if !r.skipString() {
		return "", false
	}
	raw := r.S[start:r.I]
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
func (r *Reader) Uint(limit uint64) (uint64, bool) {
	start := r.I
	if !r.skipInt() || r.S[start] == '-' || r.I-start > 20 {
		return 0, false
	}
	n := uint64(0)
	for _, c := range []byte(r.S[start:r.I]) {
		d := uint64(c - '0')
		if d > limit || n > (limit-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// Digest reads lower-case hexadecimal digits that fill into exactly.
func (r *Reader) Digest(into []byte) bool {
	n := 2 * len(into)
	if len(r.S)-r.I < n {
		return false
	}
	text := r.S[r.I : r.I+n]
	for i := range n {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	_, err := hex.Decode(into, []byte(text))
	r.I += n
	return err == nil
}

// AppendString writes s as a JSON string. Most texts are printable ASCII; other texts
// take the slow path.
func AppendString(b []byte, s string) []byte {
	start, from := len(b), 0
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20 || c >= 0x7f:
			return append(b[:start], MustMarshal(strings.ToValidUTF8(s, "\uFFFD"))...)
		case c == '"' || c == '\\':
			b = append(append(b, s[from:i]...), '\\')
			from = i
		}
	}
	return append(append(b, s[from:]...), '"')
}
