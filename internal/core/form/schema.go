package form

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// Of returns the schema of the values that encoding/json decodes into a type: each
// value that [Check] accepts decodes. The range of 64-bit integers is 1024 smaller at
// both ends, because a check compares numbers of 53 bits. A type with its own decoder
// accepts any value, or any text. Of returns an error for a type without a schema: one
// that refers to itself, has keys that are no strings, or has fields that encoding/json
// reads in another way than a schema can express.
func Of(t reflect.Type) (json.RawMessage, error) {
	c := collector{seen: map[reflect.Type]bool{}, schemas: map[reflect.Type]*jsonschema.Schema{}}
	if err := c.collect(t); err != nil {
		return nil, err
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: c.schemas})
	if err != nil {
		return nil, err
	}
	schema, err := json.Marshal(s)
	if err == nil && string(schema) == "true" {
		schema = json.RawMessage("{}")
	}
	return schema, err
}

// collector collects the types whose schema in jsonschema differs from the decoding of
// encoding/json.
type collector struct {
	seen    map[reflect.Type]bool
	schemas map[reflect.Type]*jsonschema.Schema
}

// anything lists all types: for a pointer to a type without types jsonschema makes a
// schema that accepts only null.
var anything = []string{"null", "boolean", "number", "string", "array", "object"}

var (
	timeType   = reflect.TypeFor[time.Time]()
	numberType = reflect.TypeFor[json.Number]()
	ownJSON    = reflect.TypeFor[json.Unmarshaler]()
	ownText    = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func (c *collector) collect(t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if c.seen[t] {
		return nil
	}
	c.seen[t] = true
	switch {
	case t == timeType:
		c.schemas[t] = &jsonschema.Schema{Type: "string", Format: "date-time"}
		return nil
	case t == numberType:
		c.schemas[t] = &jsonschema.Schema{Type: "number"}
		return nil
	case reflect.PointerTo(t).Implements(ownJSON):
		c.schemas[t] = &jsonschema.Schema{Types: anything}
		return nil
	case reflect.PointerTo(t).Implements(ownText):
		c.schemas[t] = &jsonschema.Schema{Type: "string"}
		return nil
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		c.bound(t, "integer", -maxInt64, maxInt64)
	case reflect.Uint, reflect.Uint64, reflect.Uintptr:
		c.bound(t, "integer", 0, maxUint64)
	case reflect.Float32:
		c.bound(t, "number", -math.MaxFloat32, math.MaxFloat32)
	case reflect.Slice:
		if e := t.Elem(); e.Kind() == reflect.Uint8 && !reflect.PointerTo(e).Implements(ownJSON) && !reflect.PointerTo(e).Implements(ownText) {
			c.schemas[t] = &jsonschema.Schema{Types: []string{"null", "string"}, ContentEncoding: "base64"}
			return nil
		}
		return c.collect(t.Elem())
	case reflect.Array:
		return c.collect(t.Elem())
	case reflect.Map:
		if k := t.Key(); k.Kind() != reflect.String || reflect.PointerTo(k).Implements(ownText) {
			return fmt.Errorf("%v has keys that are no strings", t)
		}
		return c.collect(t.Elem())
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("nothing decodes into %v", t)
		}
	case reflect.Struct:
		for field := range t.Fields() {
			if err := c.field(t, field); err != nil {
				return err
			}
		}
	}
	return nil
}

// The last floating-point numbers within the range of 64-bit integers.
var (
	maxInt64  = math.Nextafter(1<<63, 0)
	maxUint64 = math.Nextafter(1<<64, 0)
)

func (c *collector) bound(t reflect.Type, kind string, least, most float64) {
	c.schemas[t] = &jsonschema.Schema{Type: kind, Minimum: &least, Maximum: &most}
}

func (c *collector) field(t reflect.Type, f reflect.StructField) error {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case !f.IsExported() && !f.Anonymous, name == "-" && options == "":
		return nil
	case strings.Contains(","+options+",", ",string,"):
		return fmt.Errorf("field %s of %v is a number in quotes", f.Name, t)
	case f.Anonymous && (f.Type.Kind() != reflect.Struct || name != ""):
		return fmt.Errorf("field %s of %v is embedded, and not a struct or has a name", f.Name, t)
	}
	if err := c.collect(f.Type); err != nil {
		return err
	}
	if f.Anonymous && c.schemas[f.Type] != nil {
		return errors.New("an embedded field decodes itself")
	}
	return nil
}
