package lineage

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/run"
)

// SelectorError is a syntax error in a selector.
type SelectorError struct {
	Text  string // the whole selector
	At    int    // position in characters, from 0; the length of Text is the end
	Found string // the text at the position; "" is the end
	Want  string
}

// Error returns the expected and the found text, and the position.
func (e *SelectorError) Error() string {
	found := "the end"
	if e.Found != "" {
		found = fmt.Sprintf("%q", excerpt.Cut(e.Found, 40))
	}
	return fmt.Sprintf("lineage: selector: want %s, found %s at character %d", e.Want, found, e.At+1)
}

// Caret returns the selector on one line, cut to a width in characters around the
// position of the error, and below it a line with a caret at the position.
func (e *SelectorError) Caret(width int) string {
	text := []rune(strings.Map(func(r rune) rune {
		if line(string(r), 1) == "" {
			return ' '
		}
		return r
	}, e.Text))
	width = max(width, 20)
	from := 0
	if len(text) > width {
		from = min(max(e.At-width/2, 0), len(text)-width+1)
	}
	to := min(from+width, len(text))
	return string(text[from:to]) + "\n" + strings.Repeat(" ", e.At-from) + "^"
}

// ParseSelector reads a selector. The grammar, in which words may be in any
// case and "and" binds tighter than "or":
//
//	selector  = all { "or" all }
//	all       = one { "and" one }
//	one       = "not" one | "(" selector ")" | condition
//	condition = field ( "=" | "!=" ) value
//	          | field [ "not" ] "in" "(" value { "," value } ")"
//	value     = letters, digits and _ - . : / @ * +, or any text between quotes
//
// An error is a [*SelectorError].
func ParseSelector(text string) (*Selector, error) {
	p := parser{text: text}
	if len(text) > MaxSelector {
		return nil, &SelectorError{Text: text[:min(len(text), 100)], At: 0, Found: text[:min(len(text), 20)], Want: fmt.Sprintf("at most %d bytes", MaxSelector)}
	}
	if !utf8.ValidString(text) {
		return nil, &SelectorError{Text: strings.ToValidUTF8(text, "?"), Found: "text in another encoding", Want: "UTF-8"}
	}
	if err := p.next(); err != nil {
		return nil, err
	}
	root, err := p.any(0)
	if err != nil {
		return nil, err
	}
	if p.kind != end {
		return nil, p.want(`"and", "or" or the end`)
	}
	return &Selector{root}, nil
}

// The kinds of tokens.
const (
	end = iota
	word
	quoted
	sign // one of ( ) , = !=
)

type parser struct {
	text string
	off  int // offset after the token

	kind  int
	at    int // offset of the token
	token string
}

func (p *parser) want(what string) error { return p.wantAt(p.at, p.raw(), what) }

func (p *parser) wantAt(at int, found, what string) error {
	return &SelectorError{Text: p.text, At: utf8.RuneCountInString(p.text[:at]), Found: found, Want: what}
}

// raw returns the token as written.
func (p *parser) raw() string { return p.text[p.at:p.off] }

// next reads a token.
func (p *parser) next() error {
	for p.off < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.off]) >= 0 {
		p.off++
	}
	p.at, p.token, p.kind = p.off, "", end
	if p.off == len(p.text) {
		return nil
	}
	switch c := p.text[p.off]; {
	case c == '\'' || c == '"':
		return p.quote(c)
	case strings.HasPrefix(p.text[p.off:], "!="):
		p.kind, p.off = sign, p.off+2
	case strings.IndexByte("(),=", c) >= 0:
		p.kind, p.off = sign, p.off+1
	default:
		rest := strings.TrimLeftFunc(p.text[p.at:], bare)
		if p.kind, p.off = word, len(p.text)-len(rest); p.off == p.at {
			_, size := utf8.DecodeRuneInString(rest)
			return p.wantAt(p.at, rest[:size], "a word, a sign or a value between quotes")
		}
	}
	p.token = p.raw()
	return nil
}

// bare reports whether a character may stand in a value without quotes.
func bare(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-.:/@*+", r)
}

// quote reads a text between quotes, in which the quote itself is doubled.
func (p *parser) quote(q byte) error {
	var b strings.Builder
	for i := p.off + 1; i < len(p.text); i++ {
		if p.text[i] != q {
			b.WriteByte(p.text[i])
			continue
		}
		if i+1 < len(p.text) && p.text[i+1] == q {
			b.WriteByte(q)
			i++
			continue
		}
		p.kind, p.token, p.off = quoted, b.String(), i+1
		return nil
	}
	return p.wantAt(len(p.text), "", "the closing "+string(q))
}

// quoteValue quotes a value if necessary.
func quoteValue(v string) string {
	if v != "" && strings.TrimLeftFunc(v, bare) == "" {
		return v
	}
	return `"` + strings.ReplaceAll(v, `"`, `""`) + `"`
}

func (p *parser) is(keyword string) bool {
	return p.kind == word && strings.EqualFold(p.token, keyword)
}

// take reads the next token if the current one is the sign s, and reports whether it was.
func (p *parser) take(s string) (bool, error) {
	if p.kind != sign || p.token != s {
		return false, nil
	}
	return true, p.next()
}

func (p *parser) any(depth int) (expr, error) {
	list, err := p.list("or", func() (expr, error) {
		list, err := p.list("and", func() (expr, error) { return p.one(depth) })
		if err != nil || len(list) > 1 {
			return allOf(list), err
		}
		return list[0], nil
	})
	if err != nil || len(list) > 1 {
		return anyOf(list), err
	}
	return list[0], nil
}

// list reads one or more parts with a keyword between them.
func (p *parser) list(keyword string, part func() (expr, error)) ([]expr, error) {
	var out []expr
	for {
		x, err := part()
		if err != nil {
			return nil, err
		}
		out = append(out, x)
		if !p.is(keyword) {
			return out, nil
		}
		if err := p.next(); err != nil {
			return nil, err
		}
	}
}

func (p *parser) one(depth int) (expr, error) {
	if depth > MaxSelectorDepth {
		return nil, p.want(fmt.Sprintf("at most %d levels", MaxSelectorDepth))
	}
	if p.is("not") {
		if err := p.next(); err != nil {
			return nil, err
		}
		of, err := p.one(depth + 1)
		return notExp{of}, err
	}
	open, err := p.take("(")
	switch {
	case err != nil:
		return nil, err
	case !open:
		return p.condition()
	}
	x, err := p.any(depth + 1)
	if err != nil {
		return nil, err
	}
	closed, err := p.take(")")
	if err == nil && !closed {
		err = p.want(`"and", "or" or ")"`)
	}
	return x, err
}

func (p *parser) condition() (expr, error) {
	if p.kind != word {
		return nil, p.want(`a field, "not" or "("`)
	}
	c := condition{field: fieldNamed(p.token)}
	if c.field == nil {
		return nil, p.want("a field: " + orList(fieldNames()))
	}
	if err := p.next(); err != nil {
		return nil, err
	}
	if p.is("not") {
		c.not = true
		if err := p.next(); err != nil {
			return nil, err
		}
		if !p.is("in") {
			return nil, p.want(`"in"`)
		}
	}
	if p.is("in") {
		return p.in(c)
	}
	switch {
	case p.kind == sign && p.token == "=":
	case p.kind == sign && p.token == "!=":
		c.not = true
	default:
		return nil, p.want(fmt.Sprintf(`"=", "!=" or "in" after %s`, c.field.Name))
	}
	if err := p.next(); err != nil {
		return nil, err
	}
	err := p.value(&c)
	return c, err
}

// in reads the values after the keyword.
func (p *parser) in(c condition) (expr, error) {
	if err := p.next(); err != nil {
		return nil, err
	}
	open, err := p.take("(")
	if err == nil && !open {
		err = p.want(`"(" after in`)
	}
	for more := true; more && err == nil; {
		if err = p.value(&c); err == nil {
			more, err = p.take(",")
		}
	}
	if err != nil {
		return nil, err
	}
	closed, err := p.take(")")
	if err == nil && !closed {
		err = p.want(`"," or ")"`)
	}
	return c, err
}

func (p *parser) value(c *condition) error {
	if p.kind != word && p.kind != quoted {
		return p.want("a value of " + c.field.Name)
	}
	if c.field.plain && strings.Contains(p.token, "*") {
		return p.want(c.field.Name + " without a star")
	}
	if c.field.check != nil {
		if problem := c.field.check(p.token); problem != "" {
			return p.want(problem)
		}
	}
	c.values = append(c.values, p.token)
	return p.next()
}

func fieldNames() []string {
	names := make([]string, len(selectorFields))
	for i := range selectorFields {
		names[i] = selectorFields[i].Name
	}
	return names
}

func fieldNamed(name string) *SelectorField {
	if key := name[min(len(tagField), len(name)):]; strings.EqualFold(name, tagField+key) {
		if run.ValidTag(key, "any") != nil {
			return nil
		}
		return &SelectorField{Name: tagField + key, facts: func(s *subject) []string {
			if value, ok := s.run.Tags[key]; ok {
				return []string{value}
			}
			return nil
		}}
	}
	name = strings.ToLower(name)
	if other := fieldAliases[name]; other != "" {
		name = other
	}
	i := slices.IndexFunc(selectorFields, func(f SelectorField) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return &selectorFields[i]
}
