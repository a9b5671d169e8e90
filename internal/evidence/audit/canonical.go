package audit

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth is the maximum nesting depth of canonical JSON (FORMAT.md, conventions).
const maxDepth = 64

// scanner reads canonical JSON. Its methods return false, with an undefined position,
// if the text is not in canonical form.
type scanner struct {
	s string
	i int
}

// canonical reports whether s is one JSON value in canonical form.
func canonical(s string) bool {
	c := scanner{s: s}
	return c.value(0) && c.i == len(s)
}

func (c *scanner) eat(text string) bool {
	if !strings.HasPrefix(c.s[c.i:], text) {
		return false
	}
	c.i += len(text)
	return true
}

func (c *scanner) value(depth int) bool {
	if c.i >= len(c.s) || depth > maxDepth {
		return false
	}
	switch c.s[c.i] {
	case '"':
		return c.text()
	case '{':
		return c.object(depth)
	case '[':
		return c.array(depth)
	case 't':
		return c.eat("true")
	case 'f':
		return c.eat("false")
	case 'n':
		return c.eat("null")
	}
	return c.integer()
}

func (c *scanner) object(depth int) bool {
	c.i++
	if c.eat("}") {
		return true
	}
	before, first := "", true
	for {
		key, ok := c.string()
		if !ok || !first && key <= before || !c.eat(":") || !c.value(depth+1) {
			return false
		}
		before, first = key, false
		if c.eat("}") {
			return true
		}
		if !c.eat(",") {
			return false
		}
	}
}

func (c *scanner) array(depth int) bool {
	c.i++
	if c.eat("]") {
		return true
	}
	for {
		if !c.value(depth + 1) {
			return false
		}
		if c.eat("]") {
			return true
		}
		if !c.eat(",") {
			return false
		}
	}
}

// integer moves over -?(0|[1-9][0-9]*), except -0.
func (c *scanner) integer() bool {
	start := c.i
	negative := c.eat("-")
	first := c.i
	for c.i < len(c.s) && '0' <= c.s[c.i] && c.s[c.i] <= '9' {
		c.i++
	}
	digits := c.s[first:c.i]
	if digits == "" || digits[0] == '0' && (len(digits) > 1 || negative) {
		c.i = start
		return false
	}
	return true
}

// text moves over a string with each character in its canonical form.
func (c *scanner) text() bool {
	if !c.eat(`"`) {
		return false
	}
	for c.i < len(c.s) {
		b := c.s[c.i]
		switch {
		case b == '"':
			c.i++
			return true
		case b == '\\':
			n := escaped(c.s[c.i:])
			if n == 0 {
				return false
			}
			c.i += n
		case b < ' ':
			return false
		case b < utf8.RuneSelf:
			c.i++
		default:
			r, n := utf8.DecodeRuneInString(c.s[c.i:])
			if r == utf8.RuneError && n == 1 || r == 0x2028 || r == 0x2029 {
				return false
			}
			c.i += n
		}
	}
	return false
}

// escaped returns the length of the escape that s begins with, 0 for one that is not
// canonical.
func escaped(s string) int {
	if len(s) < 2 {
		return 0
	}
	if strings.IndexByte(`"\bfnrt`, s[1]) >= 0 {
		return 2
	}
	if s[1] != 'u' || len(s) < 6 {
		return 0
	}
	hex := s[2:6]
	if hex == "2028" || hex == "2029" {
		return 6
	}
	n, err := strconv.ParseUint(hex, 16, 16)
	if err != nil || n >= ' ' || hex != strings.ToLower(hex) {
		return 0
	}
	switch n {
	case '\b', '\f', '\n', '\r', '\t':
		return 0 // they have a short form
	}
	return 6
}

// string reads a string.
func (c *scanner) string() (string, bool) {
	start := c.i
	if !c.text() {
		return "", false
	}
	raw := c.s[start:c.i]
	if strings.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], true
	}
	var s string
	if json.Unmarshal([]byte(raw), &s) != nil {
		return "", false
	}
	return s, true
}

// number reads an integer of 0 to 2^64-1.
func (c *scanner) number() (uint64, bool) {
	start := c.i
	if !c.integer() {
		return 0, false
	}
	n, err := strconv.ParseUint(c.s[start:c.i], 10, 64)
	return n, err == nil
}

// raw moves over a value and returns its bytes.
func (c *scanner) raw() (string, bool) {
	start := c.i
	ok := c.value(0)
	return c.s[start:c.i], ok
}
