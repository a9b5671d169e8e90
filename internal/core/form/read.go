package form

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rathcluster/rath/internal/core/schema"
)

// Read returns the value that a text spells for a schema. If the schema accepts only
// texts, it is the text itself, unless the text is in quotes, as JSON. Otherwise it is
// the JSON value, with yes and no for true and false. If the schema accepts texts among
// others and the text is not JSON, the value is the text; the check may reject it.
func Read(of, text string) json.RawMessage {
	asText, err := schema.Marshal(text)
	if err != nil {
		return nil // not for strings
	}
	trimmed := strings.TrimSpace(text)
	types := typesOf(parse(of), 0)
	texts := len(types) == 0 || slices.Contains(types, "string")
	only := len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return t != "string" && t != "null" })
	switch {
	case texts && only:
		if strings.HasPrefix(trimmed, `"`) && json.Valid([]byte(trimmed)) {
			return json.RawMessage(trimmed)
		}
		return asText
	case json.Valid([]byte(trimmed)):
		if _, why := Check(of, []byte(trimmed)); why == "" || !texts {
			return json.RawMessage(trimmed)
		}
	case !texts && slices.Contains(types, "boolean") && trimmed == "yes":
		return json.RawMessage("true")
	case !texts && slices.Contains(types, "boolean") && trimmed == "no":
		return json.RawMessage("false")
	}
	return asText
}

// typesOf returns the types that a schema accepts, including those of its alternatives
// and values; none if it accepts any.
func typesOf(s *jsonschema.Schema, level int) (types []string) {
	if s == nil || level > 8 {
		return nil
	}
	if s.Type != "" {
		return []string{s.Type}
	}
	if len(s.Types) > 0 {
		return s.Types
	}
	values := s.Enum
	if s.Const != nil {
		values = []any{*s.Const}
	}
	for _, v := range values {
		types = append(types, typeOf(v))
	}
	for _, part := range slices.Concat(s.AnyOf, s.OneOf) {
		one := typesOf(part, level+1)
		if len(one) == 0 {
			return nil
		}
		types = append(types, one...)
	}
	if len(s.AllOf) > 0 && len(types) == 0 {
		for _, part := range s.AllOf {
			if one := typesOf(part, level+1); len(one) > 0 {
				return one
			}
		}
	}
	return types
}

func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case map[string]any:
		return "object"
	case []any:
		return "array"
	}
	return "number"
}

// Written returns an operator's form of a JSON value, as [Read] accepts it: a text
// without its quotes.
func Written(value string) string {
	var text string
	if json.Unmarshal([]byte(value), &text) == nil && value != "null" {
		return text
	}
	return value
}
