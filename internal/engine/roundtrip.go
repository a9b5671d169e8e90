package engine

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// maxLookedAt bounds the values of a step's result that are checked for content that JSON
// drops.
const maxLookedAt = 100_000

// roundTrip encodes the value that out points to and sets it to the decoded one, so that
// the first execution of a step returns the same value as each later one. A value with
// content that JSON drops silently, such as an unexported field, is an error that names
// the field.
func roundTrip(out any) (raw []byte, err error) {
	v := reflect.ValueOf(out).Elem()
	if raw, err = json.Marshal(out); err != nil {
		return nil, err
	}
	look := maxLookedAt
	if field := dropped(v, &look); field != "" {
		return nil, fmt.Errorf("field %s would be lost: export it, give the type a MarshalJSON, or return the needed part", field)
	}
	fresh := reflect.New(v.Type())
	if err := json.Unmarshal(raw, fresh.Interface()); err != nil {
		return nil, err
	}
	v.Set(fresh.Elem())
	return raw, nil
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// dropped returns the first field within v that is set and that JSON drops, or "".
func dropped(v reflect.Value, look *int) string {
	if *look--; *look < 0 || !v.IsValid() {
		return ""
	}
	t := v.Type()
	if t.Implements(jsonMarshaler) || t.Implements(textMarshaler) || reflect.PointerTo(t).Implements(jsonMarshaler) || reflect.PointerTo(t).Implements(textMarshaler) {
		return ""
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return dropped(v.Elem(), look)
	case reflect.Slice, reflect.Array:
		if !holdsFields(t.Elem()) {
			return ""
		}
		for i := range v.Len() {
			if f := dropped(v.Index(i), look); f != "" {
				return fmt.Sprintf("%d.%s", i, f)
			}
		}
	case reflect.Map:
		if !holdsFields(t.Elem()) {
			return ""
		}
		for _, k := range v.MapKeys() {
			if f := dropped(v.MapIndex(k), look); f != "" {
				return fmt.Sprintf("%v.%s", k, f)
			}
		}
	case reflect.Struct:
		for i := range t.NumField() {
			if f := droppedField(v.Field(i), t.Field(i), look); f != "" {
				return f
			}
		}
	}
	return ""
}

func droppedField(v reflect.Value, f reflect.StructField, look *int) string {
	embedded := f.Anonymous && (f.Type.Kind() == reflect.Struct || f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct)
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case f.Name == "_":
		return ""
	case !f.IsExported() && !embedded, f.Tag.Get("json") == "-":
		if v.IsZero() {
			return ""
		}
		return f.Name
	}
	inner := dropped(v, look)
	if inner == "" || embedded && name == "" {
		return inner
	}
	return f.Name + "." + inner
}

// holdsFields reports whether values of a type may have fields.
func holdsFields(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Array, reflect.Map:
		return true
	}
	return false
}
