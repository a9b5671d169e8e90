package form_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	oldrand "math/rand"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/rathcluster/rath/internal/core/form"
	"github.com/rathcluster/rath/internal/testkit/must"
)

type inner struct {
	Name  string   `json:"name"`
	Many  []int16  `json:"many,omitempty"`
	Maybe *float32 `json:"maybe"`
}

// Embedded is embedded, so that its fields are those of the struct around it.
type Embedded struct {
	Extra uint8 `json:"extra,omitempty"`
}

type outer struct {
	Embedded
	In    inner            `json:"in"`
	Map   map[string]int64 `json:"map"`
	Pair  [2]bool          `json:"pair"`
	When  time.Time        `json:"when"`
	Bytes []byte           `json:"bytes"`
	Any   any              `json:"any,omitempty"`
}

// recursive refers to itself.
type recursive struct {
	Next *recursive `json:"next"`
}

// types are those that answers are decoded into.
var types = []reflect.Type{
	reflect.TypeFor[string](), reflect.TypeFor[bool](), reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[int32](), reflect.TypeFor[int64](),
	reflect.TypeFor[uint](), reflect.TypeFor[uint16](), reflect.TypeFor[uint64](), reflect.TypeFor[float32](), reflect.TypeFor[float64](), reflect.TypeFor[*int](),
	reflect.TypeFor[[]string](), reflect.TypeFor[[]*bool](), reflect.TypeFor[[3]int](), reflect.TypeFor[map[string]float64](), reflect.TypeFor[inner](), reflect.TypeFor[*outer](),
	reflect.TypeFor[outer](), reflect.TypeFor[time.Time](), reflect.TypeFor[time.Duration](), reflect.TypeFor[[]byte](), reflect.TypeFor[json.Number](), reflect.TypeFor[any](),
	reflect.TypeFor[json.RawMessage](), reflect.TypeFor[*json.RawMessage](), reflect.TypeFor[map[string][]inner](),
}

func schemaOf(t *testing.T, of reflect.Type) string {
	t.Helper()
	s, err := form.Of(of)
	if err != nil {
		t.Fatalf("%v: %v", of, err)
	}
	return string(s)
}

// TestCheckedDecodes: each value that the schema of a type accepts decodes into the
// type, for any JSON; a value that does not decode is rejected.
func TestCheckedDecodes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	taken, refused := map[reflect.Type]int{}, map[reflect.Type]int{}
	for _, of := range types {
		schema := schemaOf(t, of)
		for range 600 {
			value := someJSON(r, 3)
			if r.IntN(3) > 0 { // near one that fits
				value = mutated(r, valueOf(t, r, of))
			}
			out, why := form.Check(schema, []byte(value))
			into := reflect.New(of)
			switch {
			case why != "":
				refused[of]++
			default:
				taken[of]++
				if err := json.Unmarshal(out, into.Interface()); err != nil {
					t.Fatalf("%v takes %s as %s, which does not decode: %v\n%s", of, value, out, err, schema)
				}
				if again, why := form.Check(schema, out); why != "" || string(again) != string(out) {
					t.Fatalf("%v takes %s, and then %s: %s", of, out, again, why)
				}
			}
		}
		if of.Kind() != reflect.Interface && !strings.Contains(of.String(), "RawMessage") && (taken[of] < 50 || refused[of] < 50) {
			t.Errorf("%v: %d taken, %d refused: the test shows little", of, taken[of], refused[of])
		}
	}
}

// TestEncodedChecks: the values of a type, as encoding/json writes them, are accepted.
func TestEncodedChecks(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, of := range types {
		schema := schemaOf(t, of)
		for range 100 {
			value := valueOf(t, r, of)
			if _, why := form.Check(schema, []byte(value)); why != "" {
				t.Fatalf("%v refuses %s: %s\n%s", of, value, why, schema)
			}
		}
	}
}

// valueOf returns a value of a type as JSON.
func valueOf(t *testing.T, r *rand.Rand, of reflect.Type) string {
	t.Helper()
	switch of {
	case reflect.TypeFor[time.Time]():
		return time.Unix(r.Int64N(1<<33), 0).UTC().Format(`"` + time.RFC3339 + `"`)
	case reflect.TypeFor[json.Number]():
		return strconv.Itoa(r.IntN(1000))
	case reflect.TypeFor[any](), reflect.TypeFor[json.RawMessage](), reflect.TypeFor[*json.RawMessage]():
		return someJSON(r, 2)
	}
	v := reflect.New(of).Elem()
	fill(r, v)
	text := must.Get(json.Marshal(v.Interface()))(t)
	return string(text)
}

// fill sets a value to random contents, of the sizes of real answers.
func fill(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(r.Int64N(1<<33), 0).UTC()))
			return
		}
		for _, field := range v.Fields() {
			fill(r, field)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(r, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		one := reflect.New(v.Type().Elem()).Elem()
		fill(r, one)
		v.SetMapIndex(reflect.ValueOf("k"), one)
	case reflect.String:
		v.SetString([]string{"", "a", "2026", "ä\n"}[r.IntN(4)])
	case reflect.Interface:
		v.Set(reflect.ValueOf(map[string]any{"x": 1.5}))
	default:
		one, _ := quick.Value(v.Type(), randSource(r))
		v.Set(one)
	}
}

// someJSON returns JSON of any kind.
func someJSON(r *rand.Rand, deep int) string {
	scalars := []string{
		"null", "true", "false", "0", "-0", "1", "2.0", "2e3", "-1", "1.5", "300", "70000", "1e18", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
		"18446744073709551615", "18446744073709551616", "1e30", "1e39", "1e308", "123.000000000000000000001", `""`, `"a"`, `"2026"`, `"2026-11-20T09:00:00Z"`, `"dGV4dA=="`, `"` + "\u202e" + `"`,
	}
	if n := r.IntN(4); deep > 0 && n == 0 {
		return "[" + someJSON(r, deep-1) + "," + someJSON(r, deep-1) + "]"
	} else if deep > 0 && n == 1 {
		names := []string{"name", "Name", "many", "in", "map", "x"}
		return fmt.Sprintf(`{%q:%s,%q:%s}`, names[r.IntN(6)], someJSON(r, deep-1), names[r.IntN(6)], someJSON(r, deep-1))
	}
	return scalars[r.IntN(len(scalars))]
}

// mutated replaces a part of a JSON text, or adds a duplicate field.
func mutated(r *rand.Rand, text string) string {
	switch r.IntN(4) {
	case 0:
		return text
	case 1:
		if strings.HasPrefix(text, "{") && len(text) > 2 {
			return fmt.Sprintf(`{"name":%s,%s`, someJSON(r, 1), text[1:])
		}
	case 2:
		if at := strings.IndexByte(text, ':'); at > 0 {
			end := at + 1 + strings.IndexAny(text[at+1:]+"}", ",}")
			return text[:at+1] + someJSON(r, 0) + text[min(end, len(text)):]
		}
	}
	return someJSON(r, 2)
}

// TestCheck: accepted values, and the reasons for rejections.
func TestCheck(t *testing.T) {
	const place = `{"type":"object","properties":{"place":{"type":"string","enum":["staging","production"]},"copies":{"type":"integer","default":2}},"required":["place"],"additionalProperties":false}`
	for _, tt := range []struct{ schema, value, want, why string }{
		{`{"type":"string"}`, `2026`, "", `type: 2026 has type "integer", want "string"`},
		{`{"type":"string"}`, `"2026"`, `"2026"`, ""},
		{`{"type":"integer"}`, `2.0`, `2`, ""},
		{`{"type":"integer","maximum":5}`, `7`, "", "maximum: 7 is greater than 5"},
		{`{"type":"integer"}`, `"2"`, "", `type: 2 has type "string", want "integer"`},
		{`{"type":"integer"}`, ``, "", "it is missing"},
		{`{"type":"integer"}`, `1 2`, "", "it is not JSON: more comes after the value"},
		{`{"type":"integer"}`, `1e999`, "", "it is not JSON"},
		{place, `{}`, "", `"place" is missing`},
		{place, `{"place":"staging"}`, `{"copies":2,"place":"staging"}`, ""},
		{place, `{"place":"home","plaice":1}`, "", `"place": enum: home does not equal any of`},
		{place, `{"place":"staging","plaice":1}`, "", `"plaice" is not a field (there are: copies, place)`},
		{`{"type":"string","format":"date-time"}`, `"monday"`, "", `"monday" is no time like 2026-11-20T09:00:00Z`},
		{`{"type":"object","properties":{"on":{"type":"string","format":"date"}}}`, `{"on":"monday"}`, "", `"on": "monday" is no date`},
		{`{"type":"string"}`, `["` + "\u202e" + `"]`, "", `a list of 1 items has type "array"`},
		{`{"$ref":"#/nowhere"}`, `1`, "1", ""},
		{``, `{"b":1,"a":2}`, `{"a":2,"b":1}`, ""},
	} {
		got, why := form.Check(tt.schema, []byte(tt.value))
		if (tt.why == "") != (why == "") || !strings.Contains(why, tt.why) || string(got) != tt.want {
			t.Errorf("%s of %s: %s, %q; want %s, %q", tt.value, tt.schema, got, why, tt.want, tt.why)
		}
	}
}

// TestRead: the schema determines the type of a text.
func TestRead(t *testing.T) {
	for _, tt := range []struct{ schema, text, want string }{
		{`{"type":"string"}`, `2026`, `"2026"`},
		{`{"type":"string"}`, `true`, `"true"`},
		{`{"type":"string"}`, `"2026"`, `"2026"`},
		{`{"type":"string"}`, `"he" said`, `"\"he\" said"`},
		{`{"type":"string"}`, `null`, `"null"`},
		{`{"type":"string"}`, `{"day"`, `"{\"day\""`},
		{`{"type":"string"}`, ` as it is `, `" as it is "`},
		{`{"type":["null","string"]}`, `null`, `"null"`},
		{`{"enum":["a","1"]}`, `1`, `"1"`},
		{`{"oneOf":[{"const":"1","title":"One"},{"const":"2"}]}`, `1`, `"1"`},
		{`{"type":"integer"}`, `2026`, `2026`},
		{`{"type":"integer"}`, `many`, `"many"`},
		{`{"type":"boolean"}`, `yes`, `true`},
		{`{"type":["null","boolean"]}`, `no`, `false`},
		{`{"type":"object"}`, `{"a":1}`, `{"a":1}`},
		{`{"type":["null","array"],"items":{"type":"string"}}`, `[1]`, `[1]`},
		{`{"type":["string","integer"]}`, `2026`, `2026`},
		{`{"anyOf":[{"type":"string"},{"type":"integer","maximum":9}]}`, `2026`, `"2026"`},
		{`{"anyOf":[{"type":"string"},{"type":"integer"}]}`, `blue`, `"blue"`},
		{`{"type":["null","boolean","number","string","array","object"]}`, `5`, `5`},
		{``, `5`, `5`},
		{``, `blue`, `"blue"`},
	} {
		if got := form.Read(tt.schema, tt.text); string(got) != tt.want {
			t.Errorf("%q for %s: %s, want %s", tt.text, tt.schema, got, tt.want)
		}
	}
}

// TestWords: a schema in words, and a value that it accepts.
func TestWords(t *testing.T) {
	for _, tt := range []struct {
		of             any
		words, example string
	}{
		{"", "a text", `"text"`},
		{5, "a whole number", "1"},
		{uint8(5), "a whole number from 0 to 255", "1"},
		{uint(5), "a whole number of at least 0", "1"},
		{5.5, "a number", "1"},
		{float32(5.5), "a number", "1"},
		{true, "true or false", "true"},
		{new(bool), "true or false or null", "true"},
		{time.Time{}, "a time like 2026-11-20T09:00:00Z", `"2026-11-20T09:00:00Z"`},
		{[]byte{}, "bytes in base64 or null", `"dGV4dA=="`},
		{[]string{}, "a list, each a text or null", `["text"]`},
		{[2]int{}, "a list, each a whole number", "[1,1]"},
		{map[string]bool{}, "an object, each field true or false", "{}"},
		{inner{}, "an object {many?, maybe, name}", `{"maybe":1,"name":"text"}`},
		{netip.Addr{}, "a text", `"text"`},
		{big.Int{}, "any value", `"text"`},
		{json.RawMessage{}, "any value", `"text"`},
	} {
		schema := schemaOf(t, reflect.TypeOf(tt.of))
		if got, example := form.Words(schema), form.Example(schema); got != tt.words || string(example) != tt.example {
			t.Errorf("%T: %q, %s, want %q, %s\n%s", tt.of, got, example, tt.words, tt.example, schema)
		}
	}
	for schema, want := range map[string]string{
		`{"type":"string","enum":["red","green"]}`:                                              `one of "red", "green"; "red"`,
		`{"oneOf":[{"const":"a","title":"A"},{"const":"b","title":"B"}]}`:                       `one of "a", "b"; "a"`,
		`{"type":"integer","minimum":5}`:                                                        `a whole number of at least 5; 5`,
		`{"type":"string","format":"email","minLength":3}`:                                      `an email address; "ann@example.com"`,
		`{"type":"string","pattern":"^[0-9]+$"}`:                                                `a text; `,
		`{"anyOf":[{"type":"string"},{"type":"integer"}]}`:                                      `a text or a whole number; "text"`,
		`{"type":"object","properties":{"\u202e\u001ba":{"type":"string"}}}`:                    `an object {a?}; `,
		`{"type":"object","properties":{"a":{"type":"string","minLength":9}},"required":["a"]}`: `an object {a}; {"a":"textttttt"}`,
		``: `; `,
	} {
		if got := form.Words(schema) + "; " + string(form.Example(schema)); got != want {
			t.Errorf("%s: %s, want %s", schema, got, want)
		}
	}
}

// TestNoSchema: a type whose answers no schema describes has none.
func TestNoSchema(t *testing.T) {
	for _, of := range []reflect.Type{
		reflect.TypeFor[recursive](), reflect.TypeFor[map[int]string](), reflect.TypeFor[map[netip.Addr]string](), reflect.TypeFor[fmt.Stringer](), reflect.TypeFor[chan int](),
		reflect.TypeFor[struct {
			N int `json:"n,string"`
		}](),
		reflect.TypeFor[struct {
			Embedded `json:"named"`
		}](),
		reflect.TypeFor[struct{ time.Duration }](),
	} {
		if s, err := form.Of(of); err == nil {
			t.Errorf("%v has the schema %s", of, s)
		}
	}
	if math.Nextafter(1<<63, 0) >= math.MaxInt64 {
		t.Error("the bound of integers is none")
	}
}

// randSource returns a generator for testing/quick.
func randSource(r *rand.Rand) *oldrand.Rand { return oldrand.New(oldrand.NewSource(r.Int64())) }
