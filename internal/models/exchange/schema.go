package exchange

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/rathcluster/rath/llm"
)

// emptySchema is sent for a tool without parameters.
const emptySchema = `{"type":"object","properties":{}}`

// unknownTo are the keywords that servers reject as unknown names, by host.
var unknownTo = map[string][]string{
	"generativelanguage.googleapis.com": {
		"$schema", "$id", "$comment", "additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames",
		"const", "examples", "exclusiveMinimum", "exclusiveMaximum",
	},
}

// omitted are the keywords of JSON Schema that are removed from a request for p.
func (e *Endpoint) omitted(p *llm.Provider) []string {
	if len(p.SchemaOmit) > 0 {
		return p.SchemaOmit
	}
	return unknownTo[e.Host]
}

// Schema returns the schema of a tool's parameters in the form that the server of p
// accepts.
func (e *Endpoint) Schema(p *llm.Provider, t *llm.ToolSpec) json.RawMessage {
	if t.Schema == "" {
		return json.RawMessage(emptySchema)
	}
	return without(json.RawMessage(t.Schema), e.omitted(p))
}

// ResponseFormat returns the response format of p, with its schema in the form that the
// server accepts.
func (e *Endpoint) ResponseFormat(p *llm.Provider) json.RawMessage {
	if omit := e.omitted(p); len(omit) > 0 {
		return each(p.ResponseFormat, func(key string, form json.RawMessage) json.RawMessage {
			if key != "json_schema" {
				return form
			}
			return each(form, func(key string, schema json.RawMessage) json.RawMessage {
				if key != "schema" {
					return schema
				}
				return without(schema, omit)
			})
		})
	}
	return p.ResponseFormat
}

// The keywords whose values contain schemas: named ones, or a schema or a list of them.
var (
	named  = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
	nested = []string{
		"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains",
		"additionalProperties", "unevaluatedProperties", "propertyNames",
		"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "contentSchema",
	}
)

// without returns a schema without some keywords, in it and in its subschemas. It keeps
// properties with the name of a keyword, and the order of members.
func without(schema json.RawMessage, omit []string) json.RawMessage {
	if len(omit) == 0 {
		return schema
	}
	within := func(part json.RawMessage) json.RawMessage { return without(part, omit) }
	return each(schema, func(key string, value json.RawMessage) json.RawMessage {
		switch {
		case slices.Contains(omit, key):
			return nil
		case slices.Contains(named, key):
			return each(value, func(_ string, part json.RawMessage) json.RawMessage { return within(part) })
		case !slices.Contains(nested, key):
			return value
		}
		var list []json.RawMessage
		if json.Unmarshal(value, &list) != nil {
			return within(value)
		}
		for i, part := range list {
			list[i] = within(part)
		}
		if out, err := Marshal(list); err == nil {
			return out
		}
		return value
	})
}

// each returns an object with other values in its members, in their order; it leaves
// out members whose value becomes nil. Other values are returned unchanged.
func each(object json.RawMessage, f func(key string, value json.RawMessage) json.RawMessage) json.RawMessage {
	in := json.NewDecoder(bytes.NewReader(object))
	if begin, err := in.Token(); err != nil || begin != json.Delim('{') {
		return object
	}
	out := []byte{'{'}
	for in.More() {
		token, err := in.Token()
		key, ok := token.(string)
		var value json.RawMessage
		if err != nil || !ok || in.Decode(&value) != nil {
			return object
		}
		if value = f(key, value); value == nil {
			continue
		}
		name, err := Marshal(key)
		if err != nil {
			return object
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), value...)
	}
	return append(out, '}')
}
