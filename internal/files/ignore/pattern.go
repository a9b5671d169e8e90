package ignore

import "strings"

// pattern is one compiled line. The time of a match is proportional to the product of its
// length and the path's, with any number of stars.
type pattern struct {
	keep    bool     // "!": includes the path again
	dirOnly bool     // it ended with a slash
	parts   []string // between slashes; "**" stands for any number of names
}

func compile(line string) pattern {
	var p pattern
	if rest, ok := strings.CutPrefix(line, "!"); ok {
		p.keep, line = true, rest
	}
	if rest, ok := strings.CutSuffix(line, "/"); ok {
		p.dirOnly, line = true, rest
	}
	anchored := strings.Contains(line, "/")
	p.parts = strings.Split(strings.TrimPrefix(line, "/"), "/")
	if !anchored {
		p.parts = []string{"**", strings.ReplaceAll(p.parts[0], "**", "*")}
	}
	for i, part := range p.parts {
		if len(part) > 2 && strings.Trim(part, "*") == "" {
			p.parts[i] = "**"
		}
		// An escaped slash is a slash.
		if bare := strings.TrimRight(part, `\`); i < len(p.parts)-1 && (len(part)-len(bare))%2 == 1 {
			p.parts[i] = part[:len(part)-1]
		}
	}
	// "a/**" is all below a, and not a.
	if n := len(p.parts); n > 1 && p.parts[n-1] == "**" {
		p.parts = append(p.parts, "*")
	}
	return p
}

// slash returns the pattern's trailing slash, if any.
func (p *pattern) slash() string {
	if p.dirOnly {
		return "/"
	}
	return ""
}

// match backtracks only to the last "**": it can absorb any names that earlier ones leave.
func (p *pattern) match(names []string) bool {
	i, n := 0, 0
	star, from := -1, 0
	for n < len(names) {
		switch {
		case i < len(p.parts) && p.parts[i] == "**":
			star, from = i, n
			i++
		case i < len(p.parts) && glob(p.parts[i], names[n]):
			i++
			n++
		case star >= 0:
			from++
			i, n = star+1, from
		default:
			return false
		}
	}
	for i < len(p.parts) && p.parts[i] == "**" {
		i++
	}
	return i == len(p.parts)
}

// glob matches one name against *, ?, [a-z], [!a] and backslash escapes. Like git it
// compares bytes. An incomplete pattern matches nothing.
func glob(pattern, name string) bool {
	i, n := 0, 0
	star, from := -1, 0
	for n < len(name) {
		if i < len(pattern) && pattern[i] == '*' {
			star, from = i, n
			i++
			continue
		}
		if ok, width := one(pattern[i:], name[n]); ok {
			i += width
			n++
			continue
		}
		if star < 0 {
			return false
		}
		from++
		i, n = star+1, from
	}
	for i < len(pattern) && pattern[i] == '*' {
		i++
	}
	return i == len(pattern)
}

// one matches a byte with the first element of a pattern and returns the element's width in
// bytes.
func one(pattern string, c byte) (ok bool, width int) {
	if pattern == "" {
		return false, 0
	}
	switch pattern[0] {
	case '?':
		return true, 1
	case '\\':
		return len(pattern) > 1 && pattern[1] == c, 2
	case '[':
		return class(pattern, c)
	}
	return pattern[0] == c, 1
}

// class matches a byte with a bracket expression.
func class(pattern string, c byte) (ok bool, width int) {
	i := 1
	not := i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^')
	if not {
		i++
	}
	for first, in := true, false; i < len(pattern); first = false {
		if pattern[i] == ']' && !first {
			return in != not, i + 1
		}
		if rest, found := strings.CutPrefix(pattern[i:], "[:"); found {
			if end := strings.Index(rest, ":]"); end >= 0 {
				of, known := classes[rest[:end]]
				if !known {
					return false, 0
				}
				in = in || of(c)
				i += end + 4
				continue
			}
		}
		low, w := literal(pattern[i:])
		if w == 0 {
			return false, 0
		}
		i += w
		high := low
		if i+1 < len(pattern) && pattern[i] == '-' && pattern[i+1] != ']' {
			if high, w = literal(pattern[i+1:]); w == 0 {
				return false, 0
			}
			i += 1 + w
		}
		in = in || low <= c && c <= high
	}
	return false, 0 // without its end
}

// literal reads one byte of a bracket expression.
func literal(pattern string) (c byte, width int) {
	if pattern[0] != '\\' {
		return pattern[0], 1
	}
	if len(pattern) < 2 {
		return 0, 0
	}
	return pattern[1], 2
}

var classes = map[string]func(c byte) bool{
	"alnum":  func(c byte) bool { return letter(c) || digit(c) },
	"alpha":  letter,
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < ' ' || c == 0x7f },
	"digit":  digit,
	"graph":  func(c byte) bool { return c > ' ' && c < 0x7f },
	"lower":  func(c byte) bool { return 'a' <= c && c <= 'z' },
	"print":  func(c byte) bool { return c >= ' ' && c < 0x7f },
	"punct":  func(c byte) bool { return c > ' ' && c < 0x7f && !letter(c) && !digit(c) },
	"space":  func(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' },
	"upper":  func(c byte) bool { return 'A' <= c && c <= 'Z' },
	"xdigit": func(c byte) bool { return digit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' },
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func digit(c byte) bool { return '0' <= c && c <= '9' }

// escape writes a path as the pattern of itself.
func escape(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if strings.IndexByte(`*?[\!# `, path[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(path[i])
	}
	return b.String()
}
