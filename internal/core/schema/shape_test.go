package schema

import (
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// TestParts puts a schema into each field of a schema that accepts one.
func TestParts(t *testing.T) {
	t.Parallel()
	fields := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[jsonschema.Schema]()) {
		s, in := new(jsonschema.Schema), new(jsonschema.Schema)
		v := reflect.ValueOf(s).Elem().FieldByIndex(f.Index)
		switch v.Interface().(type) {
		case *jsonschema.Schema:
			v.Set(reflect.ValueOf(in))
		case []*jsonschema.Schema:
			v.Set(reflect.ValueOf([]*jsonschema.Schema{in}))
		case map[string]*jsonschema.Schema:
			v.Set(reflect.ValueOf(map[string]*jsonschema.Schema{"a/b": in}))
		default:
			continue
		}
		fields++
		seen := 0
		parts(s, func(_ string, part *jsonschema.Schema, _ bool) {
			if part == in {
				seen++
			}
		})
		if seen != 1 {
			t.Errorf("a schema in %s is seen %d times", f.Name, seen)
		}
	}
	if fields < 20 {
		t.Errorf("%d fields take schemas", fields)
	}
}
