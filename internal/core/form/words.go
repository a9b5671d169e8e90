package form

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rathcluster/rath/internal/core/schema"
)

// MaxWords bounds the text of Words, in bytes.
const MaxWords = 160

// Words describes the values that a schema accepts in a few words: "a text", "a whole
// number from 1 to 5", "an object {place, copies?}". It is "" without a schema.
func Words(schema string) string {
	s := parse(schema)
	if s == nil {
		return ""
	}
	return clip(printable(words(s, 0)), MaxWords)
}

func words(s *jsonschema.Schema, level int) string {
	if s == nil || level > 3 {
		return "any value"
	}
	if among := choices(s); len(among) > 0 {
		return "one of " + strings.Join(among, ", ")
	}
	if parts := slices.Concat(s.AnyOf, s.OneOf); len(parts) > 0 {
		return alternatives(parts, level)
	}
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	if len(types) == 0 || len(types) >= len(anything) {
		return "any value"
	}
	var all []string
	for _, t := range types {
		if t != "null" {
			all = append(all, typeWords(s, t, level))
		}
	}
	if slices.Contains(types, "null") {
		all = append(all, "null")
	}
	return strings.Join(all, " or ")
}

func alternatives(parts []*jsonschema.Schema, level int) string {
	var all []string
	for _, p := range parts {
		if text := words(p, level+1); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return strings.Join(all, " or ")
}

// choices are the listed values of a schema, as JSON, at most eight.
func choices(s *jsonschema.Schema) (all []string) {
	values := s.Enum
	if s.Const != nil {
		values = []any{*s.Const}
	}
	for _, p := range slices.Concat(s.OneOf, s.AnyOf) {
		if p == nil || p.Const == nil {
			break
		}
		values = append(slices.Clone(values), *p.Const)
	}
	for i, v := range values {
		if i == 8 {
			return append(all, fmt.Sprintf("and %d more", len(values)-i))
		}
		if text, err := schema.Marshal(v); err == nil {
			all = append(all, clip(string(text), 40))
		}
	}
	return all
}

func typeWords(s *jsonschema.Schema, t string, level int) string {
	switch t {
	case "string":
		switch s.Format {
		case "date-time":
			return "a time like 2026-11-20T09:00:00Z"
		case "date":
			return "a date like 2026-11-20"
		case "email":
			return "an email address"
		case "uri":
			return "a URL"
		}
		if s.ContentEncoding == "base64" {
			return "bytes in base64"
		}
		return "a text"
	case "integer":
		return "a whole number" + bounds(s)
	case "number":
		return "a number" + bounds(s)
	case "boolean":
		return "true or false"
	case "array":
		if s.Items == nil {
			return "a list"
		}
		return "a list, each " + words(s.Items, level+1)
	case "object":
		return objectWords(s, level)
	}
	return clip(t, 40)
}

func objectWords(s *jsonschema.Schema, level int) string {
	if len(s.Properties) == 0 {
		if s.AdditionalProperties != nil && s.AdditionalProperties.Not == nil {
			return "an object, each field " + words(s.AdditionalProperties, level+1)
		}
		return "an object"
	}
	var names []string
	for i, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if i == 8 {
			names = append(names, "…")
			break
		}
		name, required := clip(name, 40), slices.Contains(s.Required, name)
		if !required {
			name += "?"
		}
		names = append(names, name)
	}
	return "an object {" + strings.Join(names, ", ") + "}"
}

// bounds names the minimum and the maximum of numbers, except those of Go's types.
func bounds(s *jsonschema.Schema) string {
	const far = 1e15
	least, most := s.Minimum, s.Maximum
	if least != nil && *least < -far {
		least = nil
	}
	if most != nil && *most > far {
		most = nil
	}
	switch {
	case least != nil && most != nil:
		return fmt.Sprintf(" from %v to %v", number(*least), number(*most))
	case least != nil:
		return fmt.Sprintf(" of at least %v", number(*least))
	case most != nil:
		return fmt.Sprintf(" of at most %v", number(*most))
	}
	return ""
}

func number(f float64) string {
	text, err := json.Marshal(f)
	if err != nil {
		return "?"
	}
	return string(text)
}

// Example returns a value that a schema accepts, nil if it finds none that can be
// shown.
func Example(of string) json.RawMessage {
	s := parse(of)
	if s == nil {
		return nil
	}
	text, err := schema.Marshal(example(s, 0))
	if err != nil {
		return nil
	}
	taken, why := Check(of, text)
	if why != "" || printable(string(taken)) != string(taken) {
		return nil
	}
	return taken
}

func example(s *jsonschema.Schema, level int) any {
	if s == nil || level > 4 {
		return "text"
	}
	switch {
	case s.Default != nil:
		if v, err := decode(s.Default); err == nil {
			return v
		}
	case len(s.Examples) > 0:
		return s.Examples[0]
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Const != nil:
		return *s.Const
	}
	if parts := slices.Concat(s.AnyOf, s.OneOf); len(parts) > 0 {
		return example(parts[0], level+1)
	}
	kind := s.Type
	for _, t := range s.Types {
		if t != "null" && (kind == "" || t == "string") {
			kind = t
		}
	}
	switch kind {
	case "integer", "number":
		n := 1.0
		if s.Minimum != nil {
			n = max(n, *s.Minimum)
		}
		if s.Maximum != nil {
			n = min(n, *s.Maximum)
		}
		return n
	case "boolean":
		return true
	case "null":
		return nil
	case "array":
		all := []any{}
		n := min(max(1, length(s.MinItems)), 8)
		if s.MaxItems != nil {
			n = min(n, *s.MaxItems)
		}
		for range n {
			all = append(all, example(s.Items, level+1))
		}
		return all
	case "object":
		return objectExample(s, level)
	}
	return textExample(s)
}

func objectExample(s *jsonschema.Schema, level int) any {
	object := map[string]any{}
	for _, name := range s.Required {
		object[name] = example(s.Properties[name], level+1)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if len(object) == 0 {
			object[name] = example(s.Properties[name], level+1)
		}
	}
	return object
}

func textExample(s *jsonschema.Schema) string {
	switch s.Format {
	case "date-time":
		return "2026-11-20T09:00:00Z"
	case "date":
		return "2026-11-20"
	case "email":
		return "ann@example.com"
	case "uri":
		return "https://example.com"
	}
	if s.ContentEncoding == "base64" {
		return "dGV4dA=="
	}
	text := "text"
	if least := min(length(s.MinLength), 64); least > len(text) {
		text += strings.Repeat("t", least-len(text))
	}
	if s.MaxLength != nil {
		text = text[:max(0, min(len(text), *s.MaxLength))]
	}
	return text
}

func length(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// clip cuts a text to n bytes, the last of which mark the cut.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n -= len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// printable returns a text without characters that could control a terminal or reorder
// the text around it: schemas come from untrusted programs.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return -1
	}, s)
}
