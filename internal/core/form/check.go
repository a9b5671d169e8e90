package form

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rathcluster/rath/internal/core/schema"
)

// MaxSchema bounds a schema, in bytes.
const MaxSchema = 16 << 10

// maxDepth bounds the nesting of objects and lists in an answer.
const maxDepth = 64

// Check returns a value in the form in which it is recorded as an answer, or the reason
// why the schema rejects it. Missing fields get their defaults, each field occurs once,
// and a whole number has no fraction and no exponent. An invalid schema accepts any
// JSON value.
func Check(text string, value []byte) (recorded json.RawMessage, why string) {
	v, err := decode(value)
	if err != nil {
		return nil, err.Error()
	}
	if depth(v) > maxDepth {
		return nil, fmt.Sprintf("it is nested more than %d levels deep", maxDepth)
	}
	s := parse(text)
	if object, ok := v.(map[string]any); ok && s != nil {
		for name, p := range s.Properties {
			if _, there := object[name]; !there && p != nil && p.Default != nil {
				if object[name], err = decode(p.Default); err != nil {
					delete(object, name)
				}
			}
		}
	}
	if recorded, err = schema.Marshal(whole(v)); err != nil {
		return nil, err.Error()
	}
	if s == nil {
		return recorded, ""
	}
	var plain any
	if err := json.Unmarshal(recorded, &plain); err != nil {
		return nil, "it is not JSON that a program reads: " + err.Error() // such as 1e999
	}
	if why := wrongFormat(s, plain, ""); why != "" {
		return nil, printable(why)
	}
	if why, err = schema.Refuses(json.RawMessage(text), plain); err == nil && why != "" {
		return nil, printable(fractions.ReplaceAllString(why, "$1"))
	}
	return recorded, ""
}

// fractions matches the form in which the checking library writes whole numbers.
var fractions = regexp.MustCompile(`\b([0-9]+)(?:/1|\.000000)\b`)

// parse returns a schema, nil for none or one that cannot be read.
func parse(schema string) *jsonschema.Schema {
	s := new(jsonschema.Schema)
	if schema == "" || json.Unmarshal([]byte(schema), s) != nil {
		return nil
	}
	return s
}

// decode reads one JSON value, with numbers as they are written.
func decode(value []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it is missing")
		}
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is not JSON: more comes after the value")
	}
	return v, nil
}

func depth(v any) int {
	deepest := 0
	switch v := v.(type) {
	case map[string]any:
		for _, one := range v {
			deepest = max(deepest, depth(one))
		}
		return deepest + 1
	case []any:
		for _, one := range v {
			deepest = max(deepest, depth(one))
		}
		return deepest + 1
	}
	return 0
}

// whole writes whole numbers in the form that encoding/json accepts for integers: to a
// schema 2.0 and 2e3 are whole, too.
func whole(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = whole(v[name])
		}
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case json.Number:
		f, err := v.Float64()
		switch {
		case err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<64 || v != "-0" && !strings.ContainsAny(v.String(), ".eE"):
		case math.Abs(f) <= 1<<53:
			return json.Number(strconv.FormatInt(int64(f), 10))
		default:
			if exact, ok := new(big.Rat).SetString(v.String()); ok && exact.IsInt() {
				return json.Number(exact.Num().String())
			}
			return json.Number(strconv.FormatFloat(f, 'f', 0, 64))
		}
	}
	return v
}

// wrongFormat checks the formats of Go types, which validation by a schema alone
// ignores. at is the path of the value, "" for the whole answer.
func wrongFormat(s *jsonschema.Schema, v any, at string) string {
	if s == nil {
		return ""
	}
	prefix := ""
	if at != "" {
		prefix = strconv.Quote(strings.TrimPrefix(at, ".")) + ": "
	}
	switch v := v.(type) {
	case string:
		switch {
		case s.Format == "date-time" && new(time.Time).UnmarshalText([]byte(v)) != nil:
			return prefix + fmt.Sprintf("%s is no time like 2026-11-20T09:00:00Z", strconv.Quote(clip(v, 64)))
		case s.Format == "date":
			if _, err := time.Parse(time.DateOnly, v); err != nil {
				return prefix + fmt.Sprintf("%s is no date like 2026-11-20", strconv.Quote(clip(v, 64)))
			}
		case s.ContentEncoding == "base64":
			if _, err := base64.StdEncoding.DecodeString(v); err != nil {
				return prefix + "it is not base64"
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			part := s.Properties[name]
			if part == nil {
				part = s.AdditionalProperties
			}
			if why := wrongFormat(part, v[name], at+"."+name); why != "" {
				return why
			}
		}
	case []any:
		for i, one := range v {
			if why := wrongFormat(s.Items, one, at+"."+strconv.Itoa(i)); why != "" {
				return why
			}
		}
	}
	return ""
}
