package exchange

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rathcluster/rath/llm"
)

// Word is a JSON string where servers also send numbers; other values are "".
type Word string

// UnmarshalJSON never fails.
func (w *Word) UnmarshalJSON(data []byte) error {
	var s string
	switch {
	case len(data) > 1 && data[0] == '"' && bytes.IndexByte(data, '\\') < 0:
		*w = Word(llm.CleanText(string(data[1 : len(data)-1])))
	case len(data) > 0 && data[0] == '"' && json.Unmarshal(data, &s) == nil:
		*w = Word(llm.CleanText(s))
	case len(data) > 0 && (data[0] == 'n' || data[0] == 't' || data[0] == 'f'), len(data) > 0 && (data[0] == '{' || data[0] == '['):
		*w = ""
	default:
		*w = Word(llm.CleanText(string(data)))
	}
	return nil
}

// Count is a JSON integer; servers also send floats, strings or null.
type Count int64

// UnmarshalJSON never fails; a value that is no number, or whose sums could overflow,
// is 0.
func (c *Count) UnmarshalJSON(data []byte) error {
	*c = 0
	if f, err := strconv.ParseFloat(strings.Trim(string(data), `"`), 64); err == nil && f > -1e15 && f < 1e15 {
		*c = Count(f)
	}
	return nil
}

// Tokens is a count of tokens, or Absurd for an impossible count.
type Tokens int64

const (
	Absurd Tokens = -1
	// maxTokens exceeds the usage of any call; its sums and prices do not overflow.
	maxTokens = 1e12
)

// UnmarshalJSON never fails; null is 0.
func (n *Tokens) UnmarshalJSON(data []byte) error {
	*n = Absurd
	if f, err := strconv.ParseFloat(strings.Trim(string(data), `"`), 64); err == nil && f >= 0 && f <= maxTokens {
		*n = Tokens(f)
	} else if string(data) == "null" {
		*n = 0
	}
	return nil
}

// Joiner joins the fragments of a text. encoding/json decodes each fragment separately
// and so destroys a character that was split between two: as bytes or as the halves of
// a surrogate pair. A Joiner holds the first part back until the rest arrives.
type Joiner struct {
	tail []byte // the beginning of a character, at most 3 bytes
	high rune   // a high surrogate, or 0
}

// Add returns the text that is complete after the fragment raw: a JSON string, or an
// array of parts with texts. Other values add no text.
func (j *Joiner) Add(raw json.RawMessage) string { return j.within(raw, 0) }

func (j *Joiner) within(raw json.RawMessage, depth int) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return ""
	}
	switch raw[0] {
	case '"':
		return j.emit(j.unquote(raw))
	case '[':
		if depth > maxWithin {
			return ""
		}
		var b strings.Builder
		for _, p := range ContentParts(raw) {
			b.WriteString(j.within(p.Text, depth+1))
			b.WriteString(j.within(p.Summary, depth+1))
		}
		return b.String()
	default:
		return ""
	}
}

// Fragment is an element of a text that is sent as a list.
type Fragment struct {
	Text     json.RawMessage `json:"text"`
	Summary  json.RawMessage `json:"summary"`
	Thinking json.RawMessage `json:"thinking"`
}

// ContentParts returns a text, in any form, as a list of parts.
func ContentParts(raw json.RawMessage) []Fragment {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '[' {
		return []Fragment{{Text: raw}}
	}
	var parts []Fragment
	if json.Unmarshal(raw, &parts) != nil {
		return nil
	}
	return parts
}

// Flush returns the text held back, at the end of the input.
func (j *Joiner) Flush() string {
	s := llm.CleanText(string(j.tail))
	if j.high != 0 {
		s += "\uFFFD"
	}
	*j = Joiner{}
	return s
}

// unquote decodes a JSON string to bytes, which may start and end inside a character.
func (j *Joiner) unquote(raw []byte) []byte {
	s := bytes.TrimSuffix(raw[1:], []byte(`"`))
	out := j.tail
	j.tail = nil
	if j.high == 0 && bytes.IndexByte(s, '\\') < 0 {
		return append(out, s...)
	}
	for i := 0; i < len(s); {
		c := s[i]
		if c != '\\' || i+1 == len(s) {
			out = append(j.lone(out), c)
			i++
			continue
		}
		i += 2
		switch c = s[i-1]; c {
		case 'u':
			n := min(i+4, len(s))
			v, err := strconv.ParseUint(string(s[i:n]), 16, 32)
			i = n
			r := rune(v)
			switch {
			case err != nil:
				out = append(j.lone(out), "\uFFFD"...)
			case r >= 0xD800 && r < 0xDC00:
				out = j.lone(out)
				j.high = r
			case r >= 0xDC00 && r < 0xE000 && j.high != 0:
				out = utf8.AppendRune(out, utf16.DecodeRune(j.high, r))
				j.high = 0
			default:
				out = utf8.AppendRune(j.lone(out), r) // a lone low half becomes U+FFFD
			}
		case 'b', 'f', 'n', 'r', 't':
			out = append(j.lone(out), "\b\f\n\r\t"[strings.IndexByte("bfnrt", c)])
		default:
			out = append(j.lone(out), c)
		}
	}
	return out
}

// lone replaces a high surrogate without a successor.
func (j *Joiner) lone(out []byte) []byte {
	if j.high != 0 {
		j.high = 0
		out = append(out, "\uFFFD"...)
	}
	return out
}

// emit returns the complete characters of b and keeps the rest.
func (j *Joiner) emit(b []byte) string {
	if j.high == 0 {
		for i := len(b) - 1; i >= 0 && i >= len(b)-3; i-- {
			if utf8.RuneStart(b[i]) {
				if !utf8.FullRune(b[i:]) {
					j.tail = bytes.Clone(b[i:])
					b = b[:i]
				}
				break
			}
		}
	}
	return llm.CleanText(string(b))
}

// IsSet reports whether a member is present and not empty.
func IsSet(raw json.RawMessage) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "", "null", `""`, "[]", "{}":
		return false
	default:
		return true
	}
}
