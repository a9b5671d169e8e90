package flow

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// maxOpen is the maximum nesting depth of a partial answer.
const maxOpen = 1000

// partialAnswer makes valid JSON from the beginning of a JSON object in a streamed
// answer. It closes an open string at its current end. Numbers, literals and fields are
// omitted until they are complete; a field needs its value.
type partialAnswer struct {
	text  string
	at    spot
	open  []byte // the brackets that are open
	begin int    // of the object
	token int    // where a number, a word or an escape begins
	cut   int    // up to where the text is valid, once it is closed
	said  string // the last result
	key   bool   // the string is a key
	high  bool   // the first half of a surrogate pair precedes
	ended bool   // the object is complete or invalid
}

// spot is the syntax element that may follow.
type spot byte

const (
	before     spot = iota // the object
	value                  // a value
	firstValue             // a value, or the end of the array
	firstKey               // a key, or the end of the object
	nextKey                // a key
	colon
	comma // a comma, or the end of an object or an array
	inString
	inEscape
	inToken
)

// next parses the rest of an answer's text, and returns its valid part; "" if there is
// none or it has not changed. A text that does not extend the one before is another
// answer.
func (p *partialAnswer) next(text string) string {
	if !strings.HasPrefix(text, p.text) {
		*p = partialAnswer{}
	}
	i := len(p.text)
	for p.text = text; i < len(text) && !p.ended; i++ {
		p.ended = !p.read(i, text[i]) || len(p.open) > maxOpen || p.cut > 0 && len(p.open) == 0
	}
	var b strings.Builder
	b.WriteString(text[p.begin:p.cut])
	if !p.key && (p.at == inString || p.at == inEscape) {
		b.WriteByte('"')
	}
	for j := len(p.open) - 1; j >= 0; j-- {
		b.WriteByte(p.open[j] + 2) // { and }, [ and ]
	}
	if b.String() == p.said {
		return ""
	}
	p.said = b.String()
	return p.said
}

// read parses the byte at i, and reports whether it is valid there.
func (p *partialAnswer) read(i int, c byte) bool {
	switch p.at {
	case before:
		if c == '{' {
			p.begin = i
			p.opens(i, c, firstKey)
		}
		return true
	case inString:
		return p.character(i, c)
	case inEscape:
		return p.escape(i, c)
	case inToken:
		if strings.IndexByte(" \t\r\n,]}", c) < 0 {
			return true
		}
		if !json.Valid([]byte(p.text[p.token:i])) {
			return false
		}
		p.ends(i)
	}
	if strings.IndexByte(" \t\r\n", c) >= 0 {
		return true
	}
	switch {
	case c == '"' && p.at <= nextKey:
		p.key = p.at == firstKey || p.at == nextKey
		p.at = inString
		if !p.key {
			p.cut = i + 1
		}
	case c == ':' && p.at == colon:
		p.at = value
	case c == ',' && p.at == comma:
		p.at = value
		if p.open[len(p.open)-1] == '{' {
			p.at = nextKey
		}
	case c == '}' && (p.at == firstKey || p.at == comma), c == ']' && (p.at == firstValue || p.at == comma):
		if p.open[len(p.open)-1]+2 != c {
			return false
		}
		p.open = p.open[:len(p.open)-1]
		p.ends(i + 1)
	case p.at != value && p.at != firstValue:
		return false
	case c == '{':
		p.opens(i, c, firstKey)
	case c == '[':
		p.opens(i, c, firstValue)
	default:
		p.token, p.at = i, inToken
	}
	return true
}

// opens begins an object or an array at i.
func (p *partialAnswer) opens(i int, c byte, at spot) {
	p.open, p.at, p.cut = append(p.open, c), at, i+1
}

// ends ends a value before i.
func (p *partialAnswer) ends(i int) {
	p.cut, p.at = i, comma
}

// character parses a byte of a string.
func (p *partialAnswer) character(i int, c byte) bool {
	switch {
	case c == '"' && p.key:
		p.key, p.high, p.at = false, false, colon
		return true
	case c == '"':
		p.high = false
		p.ends(i + 1)
		return true
	case c == '\\':
		p.token, p.at = i, inEscape
		return true
	case c < ' ':
		return false
	}
	if r, n := utf8.DecodeLastRuneInString(p.text[p.begin : i+1]); r == utf8.RuneError && n == 1 {
		return true // of a character that is not whole
	}
	p.grows(i+1, false)
	return true
}

// escape parses a byte of an escape in a string.
func (p *partialAnswer) escape(i int, c byte) bool {
	switch n := i - p.token; {
	case n == 1 && c == 'u':
		return true
	case n == 1:
		if strings.IndexByte(`"\/bfnrt`, c) < 0 {
			return false
		}
		p.grows(i+1, false)
	case strings.IndexByte("0123456789abcdefABCDEF", c) < 0:
		return false
	case n == 5:
		hex := strings.ToLower(p.text[p.token+2 : i+1])
		p.grows(i+1, hex >= "d800" && hex < "dc00")
	default:
		return true
	}
	p.at = inString
	return true
}

// grows marks the string as valid up to i, unless i splits a surrogate pair.
func (p *partialAnswer) grows(i int, high bool) {
	if p.high = high; !p.key && !high {
		p.cut = i
	}
}
