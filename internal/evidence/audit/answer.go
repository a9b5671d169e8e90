package audit

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// answered checks that the value of an answer has the type and the required fields of the
// schema of its question. It does not check the rest of the schema.
func (f *folding) answered(r *logRun, d *receivedData) {
	if r.suspended == nil || d.Kind != "respond" && d.Kind != "approve" {
		return
	}
	for _, w := range r.suspended.For {
		if w.Path != d.Path || w.Schema == "" || w.Edits && d.Value == "" {
			continue
		}
		if want := misfit(w.Schema, d.Value); want != "" {
			f.a.check(Waits, false, f.says(d.Run, fmt.Sprintf("an answer to the question at step %s that is %s", d.Path, want), clip(d.Value, 100)))
		}
	}
}

// misfit returns the top-level type that a schema requires and a value does not have, "" if
// they agree.
func misfit(schema, value string) string {
	var s struct {
		Type     any      `json:"type"`
		Required []string `json:"required"`
	}
	var v any
	if json.Unmarshal([]byte(schema), &s) != nil {
		return ""
	}
	if json.Unmarshal([]byte(value), &v) != nil {
		return "JSON"
	}
	types, _ := s.Type.([]any)
	if one, ok := s.Type.(string); ok {
		types = []any{one}
	}
	if len(types) > 0 && !slices.ContainsFunc(types, func(t any) bool { return isOf(v, t) }) {
		return fmt.Sprintf("of type %v", s.Type)
	}
	if object, ok := v.(map[string]any); ok {
		for _, name := range s.Required {
			if _, there := object[name]; !there {
				return fmt.Sprintf("an object with %q", name)
			}
		}
	}
	return ""
}

func isOf(v, kind any) bool {
	switch v := v.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case float64:
		return kind == "number" || kind == "integer" && v == math.Trunc(v)
	case []any:
		return kind == "array"
	}
	return kind == "object"
}
