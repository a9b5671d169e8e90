package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Schemas are the JSON Schemas that stored messages are held against. Each is
// compiled once; a keyword that this compiler does not know is an error, so
// that nothing is left unchecked in silence. Audits may share them.
type Schemas struct {
	events  map[string]*schema // by kind
	records *schema
	result  *schema
	alias   *schema
}

// ReadSchemas reads commit.v1.json, records.v1.json, result.v1.json and
// alias.v1.json.
func ReadSchemas(files fs.FS) (*Schemas, error) {
	s := &Schemas{events: map[string]*schema{}}
	commit, err := readSchema(files, "commit.v1.json")
	if err != nil {
		return nil, err
	}
	for kind := range commit.defs {
		if !strings.Contains(kind, ".") {
			continue
		}
		if s.events[kind], err = commit.ref("#/$defs/" + kind); err != nil {
			return nil, fmt.Errorf("audit: schema of %s: %w", kind, err)
		}
	}
	for name, into := range map[string]**schema{"records.v1.json": &s.records, "result.v1.json": &s.result, "alias.v1.json": &s.alias} {
		c, err := readSchema(files, name)
		if err == nil {
			*into, err = c.compile(c.root)
		}
		if err != nil {
			return nil, fmt.Errorf("audit: schema %s: %w", name, err)
		}
	}
	return s, nil
}

// schema is a compiled part of a JSON Schema.
type schema struct {
	types    []string // empty allows all
	props    map[string]*schema
	required []string
	closed   bool // no properties but those of props
	items    *schema
	minItems int
	maxItems int
	only     []string // values that are allowed, as JSON texts
	min, max int64
	chars    int // at most this many in a string
	pattern  func(string) bool
	anyOf    []*schema
}

// compiler holds one schema document.
type compiler struct {
	root any
	defs map[string]any
	done map[string]*schema
}

func readSchema(files fs.FS, name string) (*compiler, error) {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("audit: schema: %w", err)
	}
	var doc map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("audit: schema %s: %w", name, err)
	}
	defs, _ := doc["$defs"].(map[string]any)
	return &compiler{root: doc, defs: defs, done: map[string]*schema{}}, nil
}

func (c *compiler) ref(name string) (*schema, error) {
	if s := c.done[name]; s != nil {
		return s, nil
	}
	def, ok := c.defs[strings.TrimPrefix(name, "#/$defs/")]
	if !ok {
		return nil, fmt.Errorf("%s is not defined", name)
	}
	s := &schema{}
	c.done[name] = s
	made, err := c.compile(def)
	if err == nil {
		*s = *made
	}
	return s, err
}

func (c *compiler) compile(v any) (*schema, error) {
	keywords, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("no schema")
	}
	if name, ok := keywords["$ref"].(string); ok {
		return c.ref(name)
	}
	s := &schema{min: math.MinInt64, max: math.MaxInt64, chars: -1, maxItems: -1}
	for word, value := range keywords {
		if err := c.keyword(s, word, value); err != nil {
			return nil, fmt.Errorf("%s: %w", word, err)
		}
	}
	return s, nil
}

func (c *compiler) keyword(s *schema, word string, value any) (err error) {
	ok := true
	switch word {
	case "$schema", "$id", "$defs", "title", "description", "format", "contentEncoding", "uniqueItems", "default", "examples":
		// They demand nothing that is checked here.
	case "type":
		var one string
		if one, ok = value.(string); ok {
			s.types = []string{one}
		} else {
			s.types, ok = texts(value)
		}
	case "properties":
		props, isMap := value.(map[string]any)
		ok = isMap
		s.props = make(map[string]*schema, len(props))
		for name, v := range props {
			if s.props[name], err = c.compile(v); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	case "required":
		s.required, ok = texts(value)
	case "additionalProperties":
		var allowed bool
		allowed, ok = value.(bool)
		s.closed = !allowed
	case "items":
		s.items, err = c.compile(value)
	case "minItems", "maxItems", "minimum", "maximum", "maxLength":
		n, isNumber := value.(json.Number)
		var i int64
		if ok = isNumber; ok {
			i, err = n.Int64()
		}
		switch word {
		case "minItems":
			s.minItems = int(i)
		case "maxItems":
			s.maxItems = int(i)
		case "minimum":
			s.min = i
		case "maximum":
			s.max = i
		default:
			s.chars = int(i)
		}
	case "const":
		s.only = []string{jsonText(value)}
	case "enum":
		var all []any
		all, ok = value.([]any)
		for _, v := range all {
			s.only = append(s.only, jsonText(v))
		}
	case "pattern":
		var text string
		if text, ok = value.(string); ok {
			s.pattern, err = pattern(text)
		}
	case "anyOf":
		var all []any
		all, ok = value.([]any)
		for _, v := range all {
			one, err := c.compile(v)
			if err != nil {
				return err
			}
			s.anyOf = append(s.anyOf, one)
		}
	default:
		return errors.New("the auditor does not know this keyword")
	}
	if !ok {
		return fmt.Errorf("%T is no value of it", value)
	}
	return err
}

func texts(v any) ([]string, bool) {
	list, ok := v.([]any)
	out := make([]string, 0, len(list))
	for _, one := range list {
		text, isText := one.(string)
		ok = ok && isText
		out = append(out, text)
	}
	return out, ok
}

func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // it came out of JSON
	}
	return string(text)
}

func pattern(text string) (func(string) bool, error) {
	switch text {
	case "^[A-Za-z0-9_-]{1,64}$":
		return isID, nil
	case "^[0-9a-f]{64}$":
		return isHex64, nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return re.MatchString, nil
}

// check returns what is wrong with canonical JSON, "" if nothing is.
func (s *schema) check(text string) string { return s.checkNewer(text, nil) }

// checkNewer is check for what may have fields that the schema does not know;
// newer, unless nil, is told of them.
func (s *schema) checkNewer(text string, newer func(field string)) string {
	c := scanner{s: text, newer: newer}
	return s.value(&c, "")
}

func (s *schema) value(c *scanner, at string) string {
	if len(s.anyOf) > 0 {
		start, wrong := c.i, ""
		if !slices.ContainsFunc(s.anyOf, func(one *schema) bool {
			c.i = start
			wrong = one.value(c, at)
			return wrong == ""
		}) {
			return wrong
		}
		c.i = start
	}
	start := c.i
	var wrong string
	switch is := kindAt(c); {
	case is == "":
		return named(at) + "no JSON"
	case len(s.types) > 0 && !slices.Contains(s.types, is):
		return named(at) + "type " + is + " instead of " + strings.Join(s.types, " or ")
	case is == "object":
		wrong = s.object(c, at)
	case is == "array":
		wrong = s.array(c, at)
	case is == "string":
		wrong = s.text(c, at)
	case is == "integer":
		wrong = s.integer(c, at)
	default:
		c.value(0)
	}
	if wrong == "" && len(s.only) > 0 && !slices.Contains(s.only, c.s[start:c.i]) {
		wrong = named(at) + clip(c.s[start:c.i], 40) + " instead of one of " + strings.Join(s.only, " ")
	}
	return wrong
}

func named(at string) string {
	if at == "" {
		return ""
	}
	return strings.TrimPrefix(at, ".") + ": "
}

func kindAt(c *scanner) string {
	if c.i >= len(c.s) {
		return ""
	}
	switch c.s[c.i] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "integer"
}

func (s *schema) object(c *scanner, at string) string {
	c.i++
	missing := len(s.required)
	for first := true; !c.eat("}"); first = false {
		if !first && !c.eat(",") {
			return named(at) + "no JSON"
		}
		name, ok := c.string()
		if !ok || !c.eat(":") {
			return named(at) + "no JSON"
		}
		if slices.Contains(s.required, name) {
			missing--
		}
		p := s.props[name]
		if p == nil {
			switch {
			case s.closed && c.newer == nil:
				return named(at) + "field " + strconv.Quote(name) + " is unknown"
			case s.closed:
				c.newer(strings.TrimPrefix(at+"."+name, "."))
			}
			if !c.value(0) {
				return named(at) + "no JSON"
			}
			continue
		}
		if wrong := p.value(c, at+"."+name); wrong != "" {
			return wrong
		}
	}
	if missing > 0 {
		return named(at) + "a required field is missing (" + strings.Join(s.required, ", ") + ")"
	}
	return ""
}

func (s *schema) array(c *scanner, at string) string {
	c.i++
	n := 0
	for ; !c.eat("]"); n++ {
		if n > 0 && !c.eat(",") {
			return named(at) + "no JSON"
		}
		if s.items == nil {
			if !c.value(0) {
				return named(at) + "no JSON"
			}
			continue
		}
		if wrong := s.items.value(c, at+"[]"); wrong != "" {
			return wrong
		}
	}
	if n < s.minItems || s.maxItems >= 0 && n > s.maxItems {
		return named(at) + strconv.Itoa(n) + " items"
	}
	return ""
}

func (s *schema) text(c *scanner, at string) string {
	if s.pattern == nil && s.chars < 0 {
		if !c.text() {
			return named(at) + "no JSON"
		}
		return ""
	}
	v, ok := c.string()
	switch {
	case !ok:
		return named(at) + "no JSON"
	case s.pattern != nil && !s.pattern(v):
		return named(at) + strconv.Quote(clip(v, 40)) + " does not match"
	case s.chars >= 0 && utf8.RuneCountInString(v) > s.chars:
		return named(at) + "more than " + strconv.Itoa(s.chars) + " characters"
	}
	return ""
}

func (s *schema) integer(c *scanner, at string) string {
	start := c.i
	if !c.integer() {
		return named(at) + "no integer"
	}
	n, err := strconv.ParseInt(c.s[start:c.i], 10, 64)
	if err != nil {
		if s.max == math.MaxInt64 && c.s[start] != '-' {
			return "" // an unsigned number of 64 bits
		}
		return named(at) + "out of range"
	}
	if n < s.min || n > s.max {
		return named(at) + c.s[start:c.i] + " is out of range"
	}
	return ""
}

// clip returns at most n bytes of s, cut between characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
