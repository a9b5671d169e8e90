package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// choices are the keywords that no model server accepts at the top of a schema.
var choices = []string{"allOf", "anyOf", "oneOf", "enum", "not", "const", "if", "then", "else"}

// usable returns the schema of a tool's arguments in a form that model servers accept: an
// object without a choice of schemas at its top, and with items for each array. It may
// accept more than the server, which checks the arguments itself.
func usable(schema any) (json.RawMessage, error) {
	if schema == nil {
		schema = map[string]any{}
	}
	given, ok := schema.(map[string]any)
	if !ok {
		return nil, errors.New("its schema is no object")
	}
	top := maps.Clone(given)
	switch kind := top["type"].(type) {
	case nil:
		top["type"] = "object"
	case string:
		if kind != "object" {
			return nil, fmt.Errorf("the type of its schema is %q, but arguments are an object", clip(kind, 20))
		}
	case []any:
		if !slices.Contains(kind, any("object")) {
			return nil, errors.New("the types of its schema have no object, but arguments are one")
		}
		top["type"] = "object"
	}
	properties, _ := top["properties"].(map[string]any)
	if properties == nil && top["properties"] != nil {
		return nil, errors.New("the properties of its schema are no object")
	}
	properties = maps.Clone(properties)
	if properties == nil {
		properties = map[string]any{}
	}
	for _, word := range choices[:3] {
		parts, _ := top[word].([]any)
		for _, part := range parts {
			part, _ := part.(map[string]any)
			more, _ := part["properties"].(map[string]any)
			for name, p := range more {
				if _, ok := properties[name]; !ok {
					properties[name] = p
				}
			}
		}
	}
	for _, word := range choices {
		delete(top, word)
	}
	top["properties"] = properties
	return json.Marshal(withItems(top, true))
}

// withItems returns a schema in which each array has items. keywords reports whether the
// keys of v are keywords instead of names of properties.
func withItems(v any, keywords bool) any {
	switch v := v.(type) {
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = withItems(v[i], true)
		}
		return all
	case map[string]any:
		out := make(map[string]any, len(v)+1)
		for key, value := range v {
			switch key {
			case "properties", "$defs", "definitions", "patternProperties", "dependentSchemas":
				out[key] = withItems(value, !keywords)
			case "default", "const", "enum", "examples":
				out[key] = value
				if !keywords {
					out[key] = withItems(value, true)
				}
			default:
				out[key] = withItems(value, true)
			}
		}
		if keywords && v["type"] == "array" && out["items"] == nil && out["prefixItems"] == nil {
			out["items"] = map[string]any{}
		}
		return out
	}
	return v
}
