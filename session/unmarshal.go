package session

import (
	"encoding"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/core/canonical"
)

// Events and records are read far more often than they are written: by the fold of the
// writer, by relays, by the derivation of lineage and by its index. Nearly all of them
// were written by Marshal, so a walk that is specific to the type suffices. Other input
// is left to encoding/json.

// Unmarshal reads JSON into the value that into points to, which must be zero, with the
// results of encoding/json. It reads the output of [Marshal] several times faster.
func Unmarshal(data string, into any) error {
	v := reflect.ValueOf(into).Elem()
	if scan := scanOf(v.Type()); scan != nil {
		r := reader{Reader: canonical.Reader{S: data}, own: len(data) > sharedText}
		if !r.own {
			r.S = strings.Clone(data)
		}
		if scan(&r, v) && r.I == len(r.S) {
			return nil
		}
		v.SetZero()
	}
	return json.Unmarshal([]byte(data), into)
}

// sharedText bounds the data whose texts share one copy of it: a caller that keeps one
// of the texts keeps at most that much memory alive.
const sharedText = 2 << 10

// scan reads a value of one type, which is zero, at the reader's position. It returns
// false for input that Marshal does not write for the type.
type scan func(r *reader, v reflect.Value) bool

// scans caches the scans of types; nil for types that are left to encoding/json.
var scans sync.Map // of reflect.Type to scan

func scanOf(t reflect.Type) scan {
	if s, ok := scans.Load(t); ok {
		return s.(scan)
	}
	s := newScan(t, nil)
	scans.Store(t, s)
	return s
}

var (
	jsonReader = reflect.TypeFor[json.Unmarshaler]()
	textReader = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// newScan returns the scan of a type within others. It returns nil for a type with its
// own decoder, and for one whose contents are known only at run time.
func newScan(t reflect.Type, within []reflect.Type) scan {
	switch t {
	case reflect.TypeFor[Link]():
		wire := newScan(reflect.TypeFor[wireLink](), within)
		return func(r *reader, v reflect.Value) bool {
			var w wireLink
			ok := wire(r, reflect.ValueOf(&w).Elem())
			*v.Addr().Interface().(*Link) = w.link()
			return ok
		}
	case reflect.TypeFor[Hash](), reflect.TypeFor[blob.Digest]():
		return func(r *reader, v reflect.Value) bool {
			return r.Lit(`"`) && r.Digest(v.Bytes()) && r.Lit(`"`)
		}
	}
	if p := reflect.PointerTo(t); p.Implements(jsonReader) || p.Implements(textReader) || slices.Contains(within, t) {
		return nil
	}
	within = append(slices.Clip(within), t)
	switch t.Kind() {
	case reflect.String:
		return scanText
	case reflect.Bool:
		return scanBool
	case reflect.Int, reflect.Int64, reflect.Int32:
		return scanInt
	case reflect.Uint64, reflect.Uint32:
		return scanUint
	case reflect.Pointer:
		return newPointerScan(t, within)
	case reflect.Slice:
		return newListScan(t, within)
	case reflect.Map:
		return newMapScan(t, within)
	case reflect.Struct:
		return newObjectScan(t, within)
	}
	return nil
}

func scanText(r *reader, v reflect.Value) bool {
	s, ok := r.Str()
	if r.own {
		s = strings.Clone(s)
	}
	v.SetString(s)
	return ok
}

func scanBool(r *reader, v reflect.Value) bool {
	yes := r.Lit("true")
	v.SetBool(yes)
	return yes || r.Lit("false")
}

func scanInt(r *reader, v reflect.Value) bool {
	n, ok := r.Uint(math.MaxInt64)
	if !ok || v.OverflowInt(int64(n)) {
		return false
	}
	v.SetInt(int64(n))
	return true
}

func scanUint(r *reader, v reflect.Value) bool {
	n, ok := r.Uint(math.MaxUint64)
	if !ok || v.OverflowUint(n) {
		return false
	}
	v.SetUint(n)
	return true
}

func newPointerScan(t reflect.Type, within []reflect.Type) scan {
	to := newScan(t.Elem(), within)
	if to == nil {
		return nil
	}
	return func(r *reader, v reflect.Value) bool {
		if r.Lit("null") {
			return true
		}
		v.Set(reflect.New(t.Elem()))
		return to(r, v.Elem())
	}
}

func newListScan(t reflect.Type, within []reflect.Type) scan {
	of := newScan(t.Elem(), within)
	if of == nil {
		return nil
	}
	return func(r *reader, v reflect.Value) bool {
		if r.Lit("null") {
			return true
		}
		if r.Lit("[]") {
			v.Set(reflect.MakeSlice(t, 0, 0))
			return true
		}
		if !r.Lit("[") {
			return false
		}
		for n := 0; ; n++ {
			if n == v.Cap() {
				v.Grow(1)
			}
			v.SetLen(n + 1)
			if !of(r, v.Index(n)) {
				return false
			}
			if !r.Lit(",") {
				return r.Lit("]")
			}
		}
	}
}

func newMapScan(t reflect.Type, within []reflect.Type) scan {
	of := newScan(t.Elem(), within)
	if of == nil || t.Key() != reflect.TypeFor[string]() {
		return nil
	}
	return func(r *reader, v reflect.Value) bool {
		if r.Lit("null") {
			return true
		}
		v.Set(reflect.MakeMap(t))
		if !r.Lit("{") {
			return false
		}
		if r.Lit("}") {
			return true
		}
		for {
			key, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
			if !scanText(r, key) || v.MapIndex(key).IsValid() || !r.Lit(":") || !of(r, value) {
				return false
			}
			if v.SetMapIndex(key, value); !r.Lit(",") {
				return r.Lit("}")
			}
		}
	}
}

// field is a field of a struct, with its key.
type field struct {
	key string
	at  int
	of  scan
}

func newObjectScan(t reflect.Type, within []reflect.Type) scan {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("json")
		key, how, _ := strings.Cut(tag, ",")
		switch {
		case f.Anonymous, strings.Contains(how, "string"), strings.Contains(tag, "-"):
			return nil
		case !f.IsExported():
			continue
		case !tagged || key == "":
			key = f.Name
		}
		of := newScan(f.Type, within)
		if of == nil {
			return nil
		}
		fields = append(fields, field{key, i, of})
	}
	slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.key, b.key) })
	return func(r *reader, v reflect.Value) bool {
		if !r.Lit("{") {
			return false
		}
		if r.Lit("}") {
			return true
		}
		// Keys are sorted, so that duplicates are detected.
		last := ""
		for rest := fields; ; {
			key, ok := r.Str()
			if !ok || key <= last && last != "" || !r.Lit(":") {
				return false
			}
			for last = key; len(rest) > 0 && rest[0].key < key; {
				rest = rest[1:]
			}
			switch {
			case len(rest) > 0 && rest[0].key == key:
				if !rest[0].of(r, v.Field(rest[0].at)) {
					return false // written in another form
				}
				rest = rest[1:]
			case !r.Value(0), slices.ContainsFunc(fields, func(f field) bool { return strings.EqualFold(f.key, key) }):
				return false // encoding/json would match it with the field
			}
			if !r.Lit(",") {
				return r.Lit("}")
			}
		}
	}
}
