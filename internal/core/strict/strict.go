// Package strict reads JSON from clients: an unknown field, a duplicate field or a
// value of another type is an [Error], which names the field and the remedy.
//
// Package json alone accepts names in any case, the last of two equal fields, and text
// that is not UTF-8. With each of these, two readers could see two different messages.
package strict

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Error describes a malformed message: the field, the problem, and the remedy.
// errors.Is finds run.ErrMalformed, or session.ErrTooLarge if the size is the problem.
type Error struct {
	Message string // "task", "control" and the like
	Field   string // "budget.tokens"; empty for the message as a whole
	Problem string
	Remedy  string
	Kind    error // that it wraps; nil is run.ErrMalformed
}

// Error returns the whole error on one line.
func (e *Error) Error() string {
	text := e.Message + ": "
	if e.Field != "" {
		text += "field " + e.Field + ": "
	}
	text += e.Problem
	if e.Remedy != "" {
		text += ": " + e.Remedy
	}
	return text
}

// Unwrap returns the sentinel that callers test for.
func (e *Error) Unwrap() error {
	if e.Kind != nil {
		return e.Kind
	}
	return run.ErrMalformed
}

// Decode reads a client's message, of at most limit bytes, into a struct. It returns an
// Error that begins with what for an unknown field, a duplicate field, or a field of
// another type; into then holds the fields that could be read.
func Decode(limit int, what string, data []byte, into any) error {
	if err := Size(what, data, limit); err != nil {
		return err
	}
	bad := func(problem, remedy string) error {
		return &Error{Message: what, Problem: problem, Remedy: remedy}
	}
	switch {
	case !utf8.Valid(data):
		return bad("not valid UTF-8", "encode the text as UTF-8 before it is sent")
	case len(bytes.TrimSpace(data)) == 0:
		return bad("the body is empty", "send a JSON object")
	}
	if !json.Valid(data) {
		var whole json.RawMessage
		if err := json.NewDecoder(bytes.NewReader(data)).Decode(&whole); err != nil {
			return bad(Problem(err), "send one JSON object")
		}
		return bad("something follows the JSON object", "send one object")
	}
	return decodeStruct(what, "", bytes.TrimSpace(data), reflect.ValueOf(into).Elem())
}

// decodeStruct fills a struct, field by field, and returns the first error.
func decodeStruct(what, prefix string, data json.RawMessage, into reflect.Value) error {
	if len(data) == 0 || data[0] != '{' {
		return &Error{Message: what, Field: strings.TrimSuffix(prefix, "."), Problem: "not a JSON object", Remedy: "send one, between { and }"}
	}
	fields := fieldsOf(into.Type())
	var first error
	keep := func(err error) {
		if first == nil && err != nil {
			first = err
		}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return &Error{Message: what, Problem: Problem(err)}
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return &Error{Message: what, Problem: Problem(err)}
		}
		name, _ := t.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return &Error{Message: what, Field: prefix + name, Problem: Problem(err)}
		}
		index, ok := fields[name]
		switch {
		case !ok && first != nil: // the search for the intended field takes a while
		case !ok:
			keep(unknownField(what, prefix, name, slices.Sorted(maps.Keys(fields))))
		case seen[name]:
			keep(&Error{Message: what, Field: prefix + name, Problem: "it is there twice", Remedy: "send it once"})
		case string(value) == "null": // as if it were not there
		default:
			keep(decodeField(what, prefix+name, value, into.FieldByIndex(index)))
		}
		seen[name] = true
	}
	return first
}

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	textType = reflect.TypeFor[encoding.TextUnmarshaler]()
	// rfc3339 is the syntax that other readers accept: package time accepts less strict
	// forms.
	rfc3339 = regexp.MustCompile(`^"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"$`)
)

func decodeField(what, name string, value json.RawMessage, into reflect.Value) error {
	t := into.Type()
	custom := t == timeType || readsItself(t) || reflect.PointerTo(t).Implements(textType)
	switch {
	case t == rawType:
		into.SetBytes(slices.Clone(value))
		return nil
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
		into.Set(reflect.New(t.Elem()))
		return decodeStruct(what, name+".", value, into.Elem())
	case t.Kind() == reflect.Struct && !custom:
		return decodeStruct(what, name+".", value, into)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && !custom:
		return decodeList(what, name, value, into)
	case t.Kind() == reflect.Slice && reflect.PointerTo(t.Elem()).Implements(textType) && !custom:
		return decodeTexts(what, name, value, into)
	}
	err := json.Unmarshal(value, into.Addr().Interface())
	if err != nil || t == timeType && !rfc3339.Match(value) {
		into.SetZero()
		problem, remedy := shape(t, value)
		return &Error{Message: what, Field: name, Problem: problem, Remedy: remedy}
	}
	return nil
}

// readsItself reports whether a type has its own JSON decoder.
func readsItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// decodeList fills a list of structs and returns the first error.
func decodeList(what, name string, value json.RawMessage, into reflect.Value) error {
	var items []json.RawMessage
	if json.Unmarshal(value, &items) != nil {
		return &Error{Message: what, Field: name, Problem: excerpt.Start(string(value), 60) + " is no list", Remedy: "write it as [{…},{…}]"}
	}
	list := reflect.MakeSlice(into.Type(), len(items), len(items))
	for i, item := range items {
		if readsItself(list.Type().Elem()) {
			if err := json.Unmarshal(item, list.Index(i).Addr().Interface()); err != nil {
				return &Error{Message: what, Field: fmt.Sprintf("%s[%d]", name, i), Problem: Problem(err), Remedy: "see the schema of the message"}
			}
			continue
		}
		if err := decodeStruct(what, fmt.Sprintf("%s[%d].", name, i), item, list.Index(i)); err != nil {
			return err
		}
	}
	into.Set(list)
	return nil
}

// decodeTexts decodes a list of values with a text form, such as digests, and returns
// the first error.
func decodeTexts(what, name string, value json.RawMessage, into reflect.Value) error {
	var items []string
	if json.Unmarshal(value, &items) != nil {
		problem, remedy := shape(into.Type(), value)
		return &Error{Message: what, Field: name, Problem: problem, Remedy: remedy}
	}
	list := reflect.MakeSlice(into.Type(), len(items), len(items))
	for i, item := range items {
		if err := list.Index(i).Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(item)); err != nil {
			return &Error{Message: what, Field: fmt.Sprintf("%s[%d]", name, i), Problem: excerpt.Start(err.Error(), 160)}
		}
	}
	into.Set(list)
	return nil
}

// shape describes the expected form of a field that did not decode.
func shape(t reflect.Type, value json.RawMessage) (problem, remedy string) {
	given := excerpt.Start(string(value), 60)
	switch {
	case t == timeType:
		return given + " is no time", `write it as "2026-11-20T15:04:05Z"`
	case t.Kind() == reflect.String:
		return given + " is not a string", "put the text between quotation marks"
	case t.Kind() == reflect.Bool:
		return given + " is not a truth value", "write true or false"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return given + " is not in base64", "encode the bytes so, and put the text between quotation marks"
	case t.Kind() == reflect.Slice:
		return given + " is no list of this kind", `write it as ["one","two"]`
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return given + " is no whole number that fits", "write it in digits, without sign, quotation marks, fraction and exponent"
	}
	return given + " does not belong here", "see the schema of the message"
}

// fieldsOf returns the fields of a struct by their names on the wire. The result is
// cached per type, and must not be changed.
func fieldsOf(t reflect.Type) map[string][]int {
	if known, ok := typeFields.Load(t); ok {
		return known.(map[string][]int)
	}
	out := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "" && name != "-" {
			out[name] = f.Index
		}
	}
	typeFields.Store(t, out)
	return out
}

// typeFields caches the results of fieldsOf, by reflect.Type.
var typeFields sync.Map

func unknownField(what, prefix, name string, known []string) error {
	remedy := "the known ones are " + strings.Join(known, ", ")
	switch near := nearest(name, known); {
	case what == "task" && prefix == "" && (name == "tenant" || name == "workflow"):
		remedy = "omit it: the subject has it, rath.task.<tenant>.<user>.<workflow>"
	case near != "":
		remedy = fmt.Sprintf("did you mean %q? %s", near, remedy)
	}
	return &Error{Message: what, Field: prefix + excerpt.Start(fmt.Sprintf("%q", name), 80), Problem: "unknown", Remedy: remedy}
}

// nearest returns the known name that is probably meant by a misspelt one.
func nearest(name string, known []string) string {
	fold := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
	}
	best, least := "", 3
	for _, k := range known {
		if n := distance(fold(name), fold(k)); n < least && n < len(k) {
			best, least = k, n
		}
	}
	return best
}

// distance is the Levenshtein distance of short names.
func distance(a, b string) int {
	if len(a) > 40 || len(b) > 40 {
		return len(a) + len(b)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// Problem describes a decoding error of package json without its Go types.
func Problem(err error) string {
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		where := ""
		if t.Field != "" {
			where = " in " + t.Field
		}
		return fmt.Sprintf("a JSON %s%s where another kind of value belongs", t.Value, where)
	}
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("not JSON at byte %d: %s", s.Offset, s.Error())
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the JSON stops in the middle"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// Size rejects data of more than limit bytes.
func Size(what string, data []byte, limit int) error {
	if len(data) > limit {
		remedy := "put large data into a workspace"
		if what == "control" {
			remedy = "shorten it, or split it"
		}
		return &Error{
			Message: what, Problem: fmt.Sprintf("%d bytes, at most %d are taken", len(data), limit),
			Remedy: remedy, Kind: session.ErrTooLarge,
		}
	}
	return nil
}
