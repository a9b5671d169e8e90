package schema

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// jsonNumber is a number as JSON writes it.
var jsonNumber = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$`)

// unquoted replaces texts in the arguments by the values that they spell, such as
// "5000", "true" or "[1,2]", where the schema accepts no text, if the arguments then
// match. Models sometimes quote such values.
func (c *Checker) unquoted(text string) (json.RawMessage, bool) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber() // numbers stay as they were written
	var value any
	if dec.Decode(&value) != nil {
		return nil, false
	}
	u := unquoter{shape: c.shape, left: maxSteps}
	value = u.value(c.whole.Schema(), value)
	if !u.changed || u.left < 0 {
		return nil, false
	}
	args, err := Marshal(value)
	if err != nil {
		return nil, false
	}
	var object map[string]any
	if json.Unmarshal(args, &object) != nil {
		return nil, false
	}
	if _, err := c.shape.effortOf(c.whole.Schema(), object); err != nil {
		return nil, false
	}
	brief(object)
	if c.whole.Validate(object) != nil {
		return c.withoutNulls(string(args), object)
	}
	return args, true
}

// unquoter walks a value along its schema.
type unquoter struct {
	shape   *shape
	left    int // values and schemas that it may still visit
	changed bool
}

// value returns a value, with those texts in it unquoted that the schema rejects.
func (u *unquoter) value(s *jsonschema.Schema, v any) any {
	if u.left--; u.left < 0 || s == nil {
		return v
	}
	if text, ok := v.(string); ok {
		if made, ok := spelled(text, u.types(s, 0)); ok {
			u.changed = true
			return made
		}
		return v
	}
	all := u.same(s, 0)
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			for _, one := range all {
				if part := one.Properties[name]; part != nil {
					v[name] = u.value(part, v[name])
				}
			}
		}
	case []any:
		for i := range v {
			for _, one := range all {
				v[i] = u.value(one.Items, v[i])
			}
		}
	}
	return v
}

// maxSame bounds the schemas that are followed through each other for one value.
const maxSame = 8

// same returns the schemas that describe the same value: s, those that it refers to, and its
// alternatives.
func (u *unquoter) same(s *jsonschema.Schema, depth int) []*jsonschema.Schema {
	all := []*jsonschema.Schema{s}
	if u.left--; depth == maxSame || u.left < 0 {
		return all
	}
	next := slices.Concat(s.AllOf, s.AnyOf, s.OneOf)
	if w := u.shape.known[s]; w != nil {
		next = slices.Concat(slices.Concat(w.refs...), next)
	}
	for _, part := range next {
		all = append(all, u.same(part, depth+1)...)
	}
	return all
}

// types returns the types that a schema allows for a value; none if it accepts any.
func (u *unquoter) types(s *jsonschema.Schema, depth int) map[string]bool {
	names := map[string]bool{}
	for _, one := range u.same(s, depth) {
		if one.Type != "" {
			names[one.Type] = true
		}
		for _, t := range one.Types {
			names[t] = true
		}
		values := one.Enum
		if one.Const != nil {
			values = append(slices.Clone(values), *one.Const)
		}
		for _, v := range values {
			if _, text := v.(string); text {
				names["string"] = true
			}
		}
	}
	return names
}

// spelled returns the value that a text spells, if one of the types includes it and
// none includes texts.
func spelled(text string, types map[string]bool) (any, bool) {
	if types["string"] {
		return nil, false
	}
	text = strings.TrimSpace(text)
	switch {
	case types["boolean"] && (text == "true" || text == "True"):
		return true, true
	case types["boolean"] && (text == "false" || text == "False"):
		return false, true
	case (types["integer"] || types["number"]) && jsonNumber.MatchString(text):
		return json.Number(text), true
	case types["array"] && strings.HasPrefix(text, "["), types["object"] && strings.HasPrefix(text, "{"):
		if nesting(text) > maxNesting {
			return nil, false
		}
		dec := json.NewDecoder(bytes.NewReader([]byte(text)))
		dec.UseNumber()
		var v any
		if dec.Decode(&v) != nil || dec.More() {
			return nil, false
		}
		return v, true
	}
	return nil, false
}
